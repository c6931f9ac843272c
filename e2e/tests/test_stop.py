"""Stopping programs of TensorFlow that wait for one another: all can save, after the same step."""

from __future__ import annotations

import re

import pytest
from conftest import Notebook, wait_for

FIT = """
def main_fun(args, ctx):
    import numpy as np, keras, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    x = np.ones((256, 8), "float32")
    try:
        model.fit(x, x[:, :1], validation_data=(x, x[:, :1]), epochs=1_000_000, batch_size=16, verbose=0)
    except SystemExit as e:
        print("saved after", int(model.optimizer.iterations.numpy()), "steps with code", e.code, flush=True)
        raise
"""

# A tf.function that reduces, between two reports.
LOOP = """
def main_fun(args, ctx):
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def reduced():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([1000])))

    step = 0
    try:
        while True:
            reduced()
            step += 1
            ctx.report(step=step)
    except SystemExit as e:
        print("saved after", step, "steps with code", e.code, flush=True)
        raise
"""

# TensorFlow's own way: its handler of SIGTERM agrees on a step with the other workers, saves, and exits with 42.
PREEMPTION = """
def main_fun(args, ctx):
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        v = tf.Variable(0)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    handler = tf.distribute.experimental.PreemptionCheckpointHandler(
        resolver, tf.train.Checkpoint(v=v), ctx.checkpoint_dir + "/own"
    )

    @tf.function
    def reduced():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([1000])))

    step = 0
    try:
        while True:
            handler.run(reduced)
            step += 1
            if ctx.is_chief and step % 10 == 0:
                ctx.report(loss=1 / step)  # no step: it is stopped by SIGTERM
    except SystemExit as e:
        print("saved after", step, "steps with code", e.code, flush=True)
        raise
"""


PROGRAMS = [
    pytest.param(FIT, id="fit", marks=pytest.mark.engines),
    pytest.param(LOOP, id="loop"),
    pytest.param(PREEMPTION, id="preemption", marks=pytest.mark.engines),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_task_saves_after_the_same_step(shared: Notebook, program: str) -> None:
    shared.ok("%tfcluster reserve --workers 2 --idle 60s")
    shared.ok(program)

    def saved(text: str) -> None:
        steps = re.findall(r"\[worker:\d\] saved after (\d+) steps with code (?:143|42)\b", text)
        assert len(steps) == 2 and steps[0] == steps[1], text

    def trains() -> bool:
        return bool(re.search(r"step \d|loss", shared.ok("%tfcluster status --now").all))

    shared.ok("%tfcluster start main_fun")
    wait_for("the first step", trains)
    waiting = shared.send("%tfcluster wait")
    wait_for("the cell", lambda: "running" in shared.ok("%tfcluster status --now").all)
    shared.manager.interrupt_kernel()
    assert shared.finish_reply(waiting)["status"] == "error"
    saved(shared.ok("%tfcluster logs --run 1 -n 100").all)

    shared.ok("%tfcluster start main_fun")
    wait_for("the first step", trains)
    shared.ok("%tfcluster stop")
    saved(shared.ok("%tfcluster logs --run 2 -n 100").all)
