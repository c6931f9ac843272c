"""Two workers under MultiWorkerMirrored against one process at the same global batch."""

import glob
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tfcluster import keras_patch, keras_replicas

np = pytest.importorskip("numpy")
pytest.importorskip("tensorflow")
pytest.importorskip("keras", minversion="3")

PROGRAM = Path(__file__).with_name("mwms_program.py")
EQUAL = ["fit_dataset", "fit_arrays", "sample_weights", "partial_batch", "several_outputs"]
RUNS = [*EQUAL, "lone_sample", "shard_off", "batch_norm", "steps_per_execution"]


def run(folder: Path, scenarios: list[str], workers: int, want: int = 0, **env: str) -> list[dict]:
    folder.mkdir()
    held = []
    for _ in range(workers):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind(("127.0.0.1", 0))
        held.append(s)
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in held]
    started = []
    for i in range(workers):
        its = {**os.environ, "TF_GRPC_REUSE_PORT": "true", **env}
        if workers > 1:
            its["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}})
        with open(folder / f"{i}.log", "w") as log:
            command = [sys.executable, str(PROGRAM), str(folder / f"{i}.json"), *scenarios]
            started.append(subprocess.Popen(command, env=its, stdout=log, stderr=log))
    try:
        codes = [p.wait(240) for p in started]
    finally:
        for p in started:
            p.send_signal(signal.SIGKILL)
            p.wait()
        for s in held:
            s.close()
    logs = "\n".join((folder / f"{i}.log").read_text()[-3000:] for i in range(workers))
    assert codes == [want] * workers, logs
    return [json.loads((folder / f"{i}.json").read_text()) for i in range(workers)] if want == 0 else []


def flat(told: dict):
    return np.concatenate([np.array(w) for w in told["weights"]])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict, dict]:
    base = tmp_path_factory.mktemp("mwms")
    (one,) = run(base / "one", RUNS, 1)
    first, second = run(base / "two", RUNS, 2)
    return one, first, second


@pytest.mark.parametrize("scenario", EQUAL)
def test_two_workers_train_as_one_process(told, scenario: str) -> None:
    one, first, second = (t[scenario] for t in told)
    np.testing.assert_array_equal(flat(first), flat(second))
    np.testing.assert_allclose(flat(first), flat(one), rtol=1e-4, atol=1e-6)
    assert first["logs"].keys() == one["logs"].keys()
    for name, values in one["logs"].items():
        np.testing.assert_allclose(first["logs"][name], values, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(second["logs"][name], values, rtol=1e-4, atol=1e-6)
    for name in ("evaluate", "predict"):
        if name in one:
            np.testing.assert_allclose(first[name], one[name], rtol=1e-4)


def test_predict_gives_every_row(told) -> None:
    assert [t["fit_arrays"]["rows"] for t in told] == [256] * 3


def test_a_batch_that_leaves_a_worker_nothing(told) -> None:
    _, first, second = (t["lone_sample"] for t in told)
    np.testing.assert_array_equal(flat(first), flat(second))
    assert np.isfinite(flat(first)).all()


@pytest.mark.parametrize("scenario", ["shard_off", "batch_norm", "steps_per_execution"])
def test_every_worker_has_the_same_model(told, scenario: str) -> None:
    _, first, second = (t[scenario] for t in told)
    np.testing.assert_array_equal(flat(first), flat(second))
    assert first["logs"] == second["logs"]
    assert np.isfinite(flat(first)).all()


def test_backup_is_written_by_one_and_resumed_by_all(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    (whole,) = run(tmp_path / "whole", ["backup"], 1, BACKUP=str(tmp_path / "other"))
    run(tmp_path / "broken", ["backup"], 2, want=9, BACKUP=str(backup), BREAK="1")
    first, second = run(tmp_path / "resumed", ["backup"], 2, BACKUP=str(backup))
    assert first["backup"]["epochs"] == second["backup"]["epochs"] == [2, 3]
    np.testing.assert_array_equal(flat(first["backup"]), flat(second["backup"]))
    np.testing.assert_allclose(flat(first["backup"]), flat(whole["backup"]), rtol=1e-4, atol=1e-6)
    assert sorted(p.name for p in backup.glob("*.keras")) == [f"best-{i}.keras" for i in range(1, 5)]
    assert not list(backup.glob(".*"))


BACKUP = """
import json, os, sys
from tfcluster import keras_patch, keras_replicas
keras_patch.install()
from keras.src.callbacks import backup_and_restore as module

class Model:
    def save_weights(self, filepath, overwrite):
        with open(filepath, "w") as f:
            f.write("weights")

callback = module.BackupAndRestore(sys.argv[1], double_checkpoint=True)
callback.set_model(Model())
callback.on_epoch_end(0)
callback.on_epoch_end(1)
json.dumps = lambda _: os._exit(9)  # the file is open, and empty
callback.on_epoch_end(2)
"""


def test_a_backup_that_is_cut_short_leaves_the_epoch_before(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    done = subprocess.run([sys.executable, "-c", BACKUP, str(folder)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 9, done.stderr
    assert json.loads((folder / "training_metadata.json").read_text())["epoch"] == 2
    assert json.loads((folder / "training_metadata.json.bkp").read_text())["epoch"] == 2
    assert "adapt" not in done.stderr


def test_a_checkpoint_has_its_name_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def save(model: object, filepath: str, overwrite: bool = True, **kwargs: object) -> None:
        with open(filepath, "w") as f:
            f.write("whole")
        seen.append(sorted(glob.glob("*")))
        if model == "fails":
            raise OSError("disk full")

    saving = ModuleType("saving")
    saving.save_model = saving.save_weights = save  # type: ignore[attr-defined]
    keras_patch.patch_saving(saving)
    monkeypatch.chdir(tmp_path)
    saving.save_model("model", "a.keras", zipped=None)
    saving.save_weights("model", tmp_path / "b.weights.h5", max_shard_size=None)
    saving.save_model("again", "a.keras")
    with pytest.raises(OSError, match="disk full"):
        saving.save_model("fails", "c.keras")
    assert seen == [[], ["a.keras"], ["a.keras", "b.weights.h5"], ["a.keras", "b.weights.h5"]]
    assert sorted(os.listdir()) == ["a.keras", "b.weights.h5"]
    with pytest.raises(FileNotFoundError, match="none/d.keras"):
        saving.save_model("model", "none/d.keras")  # as Keras says it


def test_what_layers_keep_is_averaged_without_retracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One trace a model, and another where it has other variables; the model is not held."""
    import gc
    import weakref

    import keras
    import tensorflow as tf

    monkeypatch.setattr(keras_replicas, "spans_workers", lambda strategy: True)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    traced = []
    reduce = strategy.reduce
    monkeypatch.setattr(strategy, "reduce", lambda *args, **kw: traced.append(1) or reduce(*args, **kw))
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.BatchNormalization()])
        other = keras.Sequential([keras.layers.Input((2,)), keras.layers.BatchNormalization()])
    kept = 2  # its mean and its variance
    for _ in range(4):
        keras_replicas.average_kept_values(model)
    assert len(traced) == kept
    keras_replicas.average_kept_values(other)
    assert len(traced) == 2 * kept
    with strategy.scope():
        model.add(keras.layers.BatchNormalization())
    model.layers[0].moving_mean.assign([1.0, 2.0])
    keras_replicas.average_kept_values(model)
    assert len(traced) == 4 * kept
    assert model.layers[0].moving_mean.numpy().tolist() == [1.0, 2.0]
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None and len(keras_replicas._means) == 1
