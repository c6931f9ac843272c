"""The callbacks of Lightning and Transformers: with the packages themselves in `make test-frameworks`."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import types

import pytest

from tfcluster import progress_trainers

PROGRAM = """
import os, socket, sys
os.environ.update(CUDA_VISIBLE_DEVICES="-1", HF_HUB_OFFLINE="1")
from tfcluster import progress_trainers
from tfcluster.channel import Channel
ours, theirs = socket.socketpair()
channel = Channel(theirs)
progress_trainers.install(channel)
import torch
class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def forward(self, x, labels=None):
        y = self.layer(x)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}
%s
channel.flush()
theirs.shutdown(socket.SHUT_WR)
for line in ours.makefile():
    print("REPORT", line.strip())
"""

LIGHTNING = """
import %(package)s as L
class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Linear()
    def training_step(self, batch, index):
        loss = self.net(*batch)["loss"]
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
data = torch.utils.data.TensorDataset(torch.zeros(64, 2), torch.zeros(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=8)
trainer = L.Trainer(%(options)s, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
given = list(trainer.callbacks)
trainer.fit(Module(), loader)
assert trainer.callbacks == given
assert channel.steps.position() == {} or channel.steps.position()["step"] == %(last)s, channel.steps.position()
"""

TRANSFORMERS = """
from transformers import Trainer, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return {"x": torch.zeros(2), "labels": torch.zeros(1)}
args = TrainingArguments(output_dir=sys.argv[1], per_device_train_batch_size=8, num_train_epochs=3, logging_steps=8,
                         use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True)
trainer = Trainer(Linear(), args, train_dataset=Data())
given = list(trainer.callback_handler.callbacks)
trainer.train()
assert trainer.callback_handler.callbacks == given
"""


def reports(body: str, *args: str) -> list[dict]:
    """The reports of a program, in order; marks of its activity, which have no source, are left out."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM % body, *args]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "cannot adapt" not in done.stderr, done.stderr
    lines = (line.removeprefix("REPORT ") for line in done.stdout.splitlines() if line.startswith("REPORT {"))
    return [message for message in map(json.loads, lines) if "source" in message]


def need(package: str) -> None:
    if importlib.util.find_spec(package) is None or importlib.util.find_spec("torch") is None:
        pytest.skip(f"{package} or torch is missing: make test-frameworks has them")


@pytest.mark.parametrize(
    ("options", "last", "position"),
    [
        ("max_epochs=3", 23, (24, 24, 3, 3)),
        ("max_epochs=3, accumulate_grad_batches=2", 23, (24, 24, 3, 3)),
        ("max_epochs=-1, max_steps=10", 9, (10, 10, 2, None)),
    ],
)
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning(package: str, options: str, last: int, position: tuple) -> None:
    need(package.partition(".")[0])
    got = reports(LIGHTNING % {"package": package, "options": options, "last": last})[-1]
    assert tuple(got.get(k) for k in ("step", "total_steps", "epoch", "total_epochs")) == position
    assert got["source"] == "lightning" and "loss" in got["metrics"]


def test_transformers(tmp_path: object) -> None:
    need("transformers")
    got = reports(TRANSFORMERS, str(tmp_path))[-1]
    assert (got["step"], got["total_steps"], got["epoch"], got["total_epochs"]) == (24, 24, 3, 3)
    assert got["source"] == "transformers" and "train_loss" in got["metrics"]


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({}, (8, 24, 1, 3)),
        ({"done": 9}, (9, 24, 2, 3)),
        ({"num_training_batches": float("inf")}, (8, 0, 1, 3)),
        ({"num_training_batches": float("inf"), "max_steps": 20}, (8, 20, 1, 3)),
        ({"max_steps": 5, "accumulate_grad_batches": 4}, (8, 20, 1, 3)),
        ({"max_steps": 50}, (8, 24, 1, 3)),
        ({"max_epochs": None}, (8, 0, 1, 0)),
        ({"max_epochs": -1}, (8, 0, 1, 0)),
    ],
)
def test_lightning_counts(given: dict, want: tuple) -> None:
    trainer = {
        "num_training_batches": 8,
        "max_epochs": 3,
        "max_steps": -1,
        "accumulate_grad_batches": 1,
        "current_epoch": 0,
        "fit_loop": types.SimpleNamespace(total_batch_idx=given.pop("done", 8) - 1),
    } | given
    got = progress_trainers.lightning_counts(types.SimpleNamespace(**trainer))
    assert tuple(got[k] for k in ("step", "total_steps", "epoch", "total_epochs")) == want


@pytest.mark.parametrize(
    ("package", "version", "says"),
    [
        ("lightning", "1.9.5", "tfcluster: no progress of lightning 1.9.5: it needs 2 or later\n"),
        ("transformers", "3.5.1", "tfcluster: no progress of transformers 3.5.1: it needs 4 or later\n"),
        ("transformers", None, "tfcluster: no progress of transformers without a version: it needs 4 or later\n"),
    ],
)
def test_older_packages_stay_as_they_are(tmp_path, package, version, says) -> None:
    """A package of an older version trains without the callback, and a line says so."""
    name = "pytorch/trainer/trainer.py" if package == "lightning" else "trainer.py"
    path = tmp_path / package / name
    path.parent.mkdir(parents=True)
    for folder in [path.parent, *path.parent.parents]:
        if folder == tmp_path:
            break
        (folder / "__init__.py").touch()
    if version:
        (tmp_path / package / "__init__.py").write_text(f"__version__ = {version!r}\n")
    path.write_text("class Trainer:\n    def fit(self): return 'as before'\n    train = fit\n")
    program = f"""
        from tfcluster import progress_trainers
        progress_trainers.install(None)
        from {package}.{name.removesuffix(".py").replace("/", ".")} import Trainer
        assert Trainer().fit() == Trainer().train() == 'as before'
    """
    environment = {"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, env=environment
    )
    assert (done.returncode, done.stderr) == (0, says), done.stderr
