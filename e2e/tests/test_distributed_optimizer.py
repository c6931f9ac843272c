"""tfcluster.DistributedOptimizer in fit, on Keras' backends: TensorFlow, JAX and, in make test-frameworks, PyTorch."""

from __future__ import annotations

import ast
import pathlib
import re
import shutil
from collections.abc import Iterator

import pytest
from conftest import Notebook, wait_for

pytestmark = pytest.mark.engines

ROOT = pathlib.Path(__file__).parents[2]

# What the programs share: whether all tasks have the same bits.
COMMON = """
import numpy as np, keras, tfcluster
import tfcluster.collective as collective

def weights(model):
    return np.concatenate([keras.ops.convert_to_numpy(v).ravel() for v in model.weights])

class Equal(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        all = collective.all_gather(weights(self.model)[None])
        self.seen.append(bool((all == all[0]).all()))
"""

# A CNN on digits: the tasks' batches together are those of one process, which trains the same model beside it.
DIGITS = """
def digits(args, ctx):
    import mnist
    (x, y), (x_test, y_test) = mnist.load()
    rank, each, steps = collective.rank(), 32, 50
    x, y = x[: 2 * each * steps].reshape(-1, 28, 28, 1).astype("float32"), y[: 2 * each * steps]
    mine = np.arange(len(x)).reshape(steps, 2, each)[:, rank].ravel()

    def cnn():
        layers = keras.layers
        return keras.Sequential([layers.Input((28, 28, 1)), layers.Conv2D(8, 3, activation="relu"),
                                 layers.MaxPooling2D(), layers.Flatten(), layers.Dense(10, activation="softmax")])

    keras.utils.set_random_seed(1)
    alone = cnn()
    keras.utils.set_random_seed(rank)  # other weights on each task: the first broadcast makes them equal
    model, equal = cnn(), Equal()
    alone.set_weights(collective.broadcast(model.get_weights()))
    loss = "sparse_categorical_crossentropy"
    model.compile(tfcluster.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss, metrics=["accuracy"])
    alone.compile(keras.optimizers.SGD(0.05), loss)
    alone.fit(x, y, batch_size=2 * each, epochs=1, shuffle=False, verbose=0)
    model.fit(x[mine], y[mine], batch_size=each, epochs=1, shuffle=False, verbose=0, callbacks=[equal])
    apart = float(np.abs(weights(model) - weights(alone)).max() / np.abs(weights(alone)).max())
    model.fit(x[mine], y[mine], batch_size=each, epochs=2, verbose=0, callbacks=[equal])
    found = model.evaluate(x_test.reshape(-1, 28, 28, 1).astype("float32"), y_test, verbose=0)
    return keras.backend.backend(), apart, equal.seen, [round(v, 6) for v in found]
"""

# Kinds of models and optimizers: for each its name, whether the tasks were equal, and the updates of 16 steps.
KINDS = """
def kinds(args, ctx):
    rank = collective.rank()
    random = np.random.default_rng(rank)
    x, y = random.normal(size=(128, 8)).astype("float32"), random.normal(size=(128, 4)).astype("float32")
    layers, found = keras.layers, {}

    def train(kind, optimizer, *before, x=x, unbuilt=False, shuffle=True, **compile):
        keras.utils.set_random_seed(rank + 10)
        inputs = [] if unbuilt else [layers.Input(x.shape[1:], dtype=x.dtype.name)]
        model = keras.Sequential([*inputs, *before, layers.Dense(16, activation="relu"), layers.Dense(4)])
        model.compile(tfcluster.DistributedOptimizer(optimizer), "mse", **compile)
        equal = Equal()
        model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=shuffle, callbacks=[equal])
        updates = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        found[kind] = equal.seen == [True, True], updates
        return model

    adam = keras.optimizers.Adam
    model = train("plain", adam(1e-2))
    train("clipped", adam(1e-2, clipnorm=0.1))
    train("accumulated", adam(1e-2, gradient_accumulation_steps=4))
    train("scaled", keras.optimizers.LossScaleOptimizer(adam(1e-2)))
    train("scaled, accumulated", keras.optimizers.LossScaleOptimizer(adam(1e-2, gradient_accumulation_steps=4)))
    x[16 * rank] = np.inf  # in another batch of each task: all skip the steps in which any task has one
    train("overflow", keras.optimizers.LossScaleOptimizer(adam(1e-2)), shuffle=False)
    x[16 * rank] = 0
    train("normalized", adam(1e-2), layers.BatchNormalization(), layers.Dropout(0.2))
    train("unbuilt", adam(1e-2), unbuilt=True)
    frozen = layers.Dense(8)
    frozen.trainable = False
    train("frozen", adam(1e-2, use_ema=True), frozen)
    of = keras.optimizers.OptimizerMap(keras.optimizers.SGD(1e-2))
    of["dense.*/kernel"] = adam(1e-2)
    train("several", keras.optimizers.MultiOptimizer(of))
    train("compiled", adam(1e-2), jit_compile=True)
    sparse = random.integers(0, 50, size=(128, 3)).astype("int32")
    train("sparse", keras.optimizers.SGD(1e-2), layers.Embedding(50, 4), layers.Flatten(), x=sparse)
    keras.mixed_precision.set_global_policy("mixed_float16")
    train("mixed", adam(1e-2))
    keras.mixed_precision.set_global_policy("float32")
    path = f"{ctx.export_dir}/model-{rank}.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    same = type(loaded.optimizer) is type(adam()) and isinstance(model.optimizer, adam)
    logs = model.fit(x, y, validation_data=(x[:32], y[:32]), epochs=2, verbose=0).history
    logs["evaluate"] = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    ends = model.fit(x + rank, y, validation_data=(x + rank, y), epochs=50, verbose=0, callbacks=[
        keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=0.05)]).epoch[-1]
    return found, same, repr(logs), ends
"""

# 20 million parameters: 80 MB of gradients, which travel in pieces. The first task also trains the same model alone,
# with the batches of both.
LARGE = """
def large(args, ctx):
    rank, each, steps = collective.rank(), 32, 8
    random = np.random.default_rng(0)
    x = random.normal(size=(2 * each * steps, 784)).astype("float32")
    y = x[:, :10] + 0.1 * random.normal(size=(len(x), 10)).astype("float32")
    mine = np.arange(len(x)).reshape(steps, 2, each)[:, rank].ravel()

    def mlp(optimizer):
        dense = keras.layers.Dense
        model = keras.Sequential([keras.layers.Input((784,)), dense(4096, "relu"), dense(4096, "relu"), dense(10)])
        model.compile(optimizer, "mse")
        return model

    keras.utils.set_random_seed(rank)
    model, equal = mlp(tfcluster.DistributedOptimizer(keras.optimizers.SGD(0.01))), Equal()
    begun = collective.broadcast(model.get_weights())
    model.fit(x[mine], y[mine], batch_size=each, epochs=2, shuffle=False, verbose=0, callbacks=[equal])
    apart = 0.0
    if rank == 0:
        alone = mlp(keras.optimizers.SGD(0.01))
        alone.set_weights(begun)
        alone.fit(x, y, batch_size=2 * each, epochs=2, shuffle=False, verbose=0)
        apart = float(np.abs(weights(model) - weights(alone)).max() / np.abs(weights(alone)).max())
        moved = float(np.abs(weights(alone) - np.concatenate([w.ravel() for w in begun])).max())
        assert moved > 100 * apart, "the comparison would hold for any weights"
    return model.count_params(), equal.seen, apart
"""

UPDATES = {"accumulated": 4, "scaled, accumulated": 4}


@pytest.fixture(scope="module", params=["tensorflow", "jax", "torch"])
def keras(request: pytest.FixtureRequest, module_env: dict[str, str], prefix: pathlib.Path) -> Iterator[Notebook]:
    """A notebook whose tasks use one of Keras' backends, for all tests."""
    library = ROOT / f".{request.param}"  # not in the environment: TensorFlow imports JAX, and PyTorch has 5 GB
    if request.param != "tensorflow" and not (library / ".done").exists():
        pytest.skip(f"missing: {library.name} (make {library.name}/.done)")
    folder = pathlib.Path(module_env["TFCLUSTER_TEST"])
    shutil.copy(ROOT / "notebooks" / "mnist.py", folder)
    more = {"PYTHONPATH": str(library)} if library.exists() else {}
    book = Notebook(prefix, {**module_env, **more, "KERAS_BACKEND": request.param, "TF_CPP_MIN_LOG_LEVEL": "3"}, folder)
    try:
        book.ok("%tfcluster reserve --workers 2 --no-zygote --idle 60s")
        yield book
        book.ok("%tfcluster shutdown")
    finally:
        book.close()


def results(notebook: Notebook, start: str) -> list:
    """What the two tasks return."""
    cell = notebook.ok(f"run = %tfcluster start --wait {start}\nprint('values', list(run.results.values()))")
    return ast.literal_eval(cell.text.rpartition("values ")[2].strip())


def test_digits(keras: Notebook, request: pytest.FixtureRequest) -> None:
    """The weights are those of one process with the same batches, and the same bits in both tasks after each epoch."""
    keras.ok(COMMON + DIGITS)
    first, second = results(keras, "digits")
    assert first == second, "what evaluate finds is a mean"
    backend, apart, equal, (_, accuracy) = first
    assert backend in request.node.name
    assert apart < 1e-4 and equal == [True, True, True] and accuracy > 0.6


def test_a_large_model(notebook: Notebook) -> None:
    """20 million parameters: equal bits after each epoch, and after 50 steps of SGD the weights of one process."""
    notebook.ok("%tfcluster reserve --workers 2 --no-zygote --idle 60s")
    notebook.ok(COMMON + LARGE)
    (parameters, equal, apart), (_, others, _) = results(notebook, "large")
    assert parameters > 20_000_000 and equal == others == [True, True] and apart < 1e-4


def test_kinds(keras: Notebook, request: pytest.FixtureRequest) -> None:
    """Every way in which Keras applies gradients; equal logs; a file that plain Keras reads; an end for all."""
    keras.ok(COMMON + KINDS)
    first, second = results(keras, "kinds")
    found, same, logs, ends = first
    assert found.pop("overflow") == (True, 12), "a step that overflows in one task is skipped in both"
    assert found == {kind: (True, UPDATES.get(kind, 16)) for kind in found} and len(found) == 12
    assert same
    if "tensorflow" in request.node.name:
        said = keras.ok("%tfcluster logs -n 10000").all
        assert "tfcluster: jit_compile is off: XLA cannot compile the call of DistributedOptimizer" in said
        assert "tfcluster: a sparse gradient of shape (50, 4) is sent as a dense one" in said
    assert (logs, ends) == (second[2], second[3]) and ends < 49


RESUMED = """
def resumed(args, ctx):
    import os, pathlib
    mark = pathlib.Path(os.environ["TFCLUSTER_TEST"], f"failed-{keras.backend.backend()}-{collective.rank()}")
    x = np.random.default_rng(collective.rank()).normal(size=(64, 8)).astype("float32")
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4)])
    model.compile(tfcluster.DistributedOptimizer(keras.optimizers.Adam(1e-2)), "mse")
    epochs, equal = [], Equal()

    class Fail(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            epochs.append(epoch)

        def on_train_batch_end(self, batch, logs=None):
            # This step needed the first task, so that task has written the backup of the epoch before.
            if epochs[-1] == 2 and collective.rank() and not mark.exists():
                mark.write_text("")
                raise SystemError("once")

    # Each task has a folder of its own, as on hosts that share none: only the first task's backup is kept.
    backup = keras.callbacks.BackupAndRestore(f"{ctx.checkpoint_dir}/{collective.rank()}")
    model.fit(x, x[:, :4], epochs=4, batch_size=8, verbose=0, callbacks=[backup, Fail(), equal])
    return epochs, equal.seen
"""


def test_a_restart_goes_on_at_the_backup(keras: Notebook) -> None:
    """Every task gets the first one's weights and epoch, though only the first one has a backup."""
    keras.ok(COMMON + RESUMED)
    assert results(keras, "--max-restarts 1 resumed") == [([2, 3], [True, True])] * 2


STOPPED = """
def stopped(args, ctx):
    x = np.ones((256, 8), "float32")
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4)])
    model.compile(tfcluster.DistributedOptimizer(keras.optimizers.SGD(1e-3)), "mse")
    try:
        model.fit(x, x[:, :4], epochs=1_000_000, batch_size=16, verbose=0)
    except SystemExit as e:
        steps = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        print("saved after", steps, "steps, code", e.code, flush=True)
        raise
"""


def test_stop_comes_at_the_same_step(keras: Notebook) -> None:
    """Both tasks can save: neither waits in a collective call for the other."""
    keras.ok(COMMON + STOPPED)
    keras.ok("%tfcluster start stopped")
    wait_for("the first steps", lambda: bool(re.search(r"step \d", keras.ok("%tfcluster status --now").all)))
    keras.ok("%tfcluster stop")
    said = re.findall(r"saved after (\d+) steps, code (\d+)", keras.ok("%tfcluster logs").all)
    assert len(said) == 2 and len(set(said)) == 1 and said[0][1] == "143", said


REFUSED = """
def refused(args, ctx):
    import tensorflow as tf
    try:
        tfcluster.DistributedOptimizer("adam")
    except TypeError as e:
        print("refused:", e)
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4)])
        model.compile(tfcluster.DistributedOptimizer(keras.optimizers.SGD(1e-3)), "mse")
    model.fit(np.ones((8, 8)), np.ones((8, 4)), verbose=0)
"""


def test_what_cannot_be_is_refused(notebook: Notebook) -> None:
    notebook.ok("%tfcluster reserve --workers 2 --idle 60s")
    notebook.ok(COMMON + REFUSED)
    cell = notebook.fails("%tfcluster start --wait refused")
    assert "refused: DistributedOptimizer takes an optimizer of Keras 3 (keras.optimizers), not 'adam'" in cell.all
    assert "use one of them" in cell.all
