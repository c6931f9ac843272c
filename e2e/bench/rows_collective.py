"""Collective calls, from Go and from Python, beside TensorFlow's ring over gRPC."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess

from measure import Figure, Options
from workplace import DEADLINE, BenchError, Kernel, Missing, Workplace

_FREE = (os.cpu_count() or 1) >= 8  # for four tasks and their agents
ROOT = pathlib.Path(__file__).parents[2]
SMALL, LARGE = 4 << 10, 16 << 20  # bytes of float32
GLOO = {SMALL: 498e-6, LARGE: 12.4e-3}  # seconds of two processes, quoted: PyTorch is not part of the environment
OURS = """
def ours(args, ctx):
    import time
    import numpy as np
    import tfcluster.collective as collective
    said = {}
    for size, times in ((4 << 10, 300), (16 << 20, 50)):
        x = np.ones(size // 4, dtype=np.float32)
        took = []
        for _ in range(times):
            collective.barrier()
            began = time.perf_counter()
            total = collective.all_reduce(x)
            took.append(time.perf_counter() - began)
        assert (total == collective.size()).all()
        said[size] = sorted(took)[times // 2]
    return said
"""
RING = """
def ring(args, ctx):
    import time
    import tensorflow as tf
    of = tf.distribute.experimental
    options = of.CommunicationOptions(implementation=of.CommunicationImplementation.RING)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    said = {}
    for size, times in ((4 << 10, 100), (16 << 20, 20)):
        with strategy.scope():
            x = tf.Variable(tf.ones(size // 4))

        def each():
            reduce = tf.distribute.get_replica_context().all_reduce
            return reduce(tf.distribute.ReduceOp.SUM, x.read_value())

        step = tf.function(lambda: strategy.run(each))
        step()
        took = []
        for _ in range(times):
            began = time.perf_counter()
            step().numpy()
            took.append(time.perf_counter() - began)
        said[size] = sorted(took)[times // 2]
    return said
"""
RUN = """
import json
run = %tfcluster start --wait {program}
print("said", json.dumps({{k: max(r[k] for r in run.results.values()) for k in run.result}}))
"""


def collective(place: Workplace, options: Options) -> list[Figure]:
    """Seconds of an all-reduce on one host."""
    options.say("collective: from Go")
    go = _go()
    options.say("collective: from Python, two tasks")
    with place.kernel("tfcluster") as kernel:
        kernel.ok("%tfcluster reserve --workers 2 --framework none\n" + OURS)
        python = _run(kernel, "ours")
        kernel.ok("%tfcluster shutdown")
    options.say("collective: from Python, four tasks")
    with place.kernel("tfcluster") as kernel:
        kernel.ok("%tfcluster reserve --workers 4 --framework none\n" + OURS)
        four = _run(kernel, "ours")
        kernel.ok("%tfcluster shutdown")
    options.say("collective: TensorFlow's ring")
    with place.kernel("tfcluster") as kernel:
        kernel.ok("%tfcluster reserve --workers 2\n" + RING)
        ring = _run(kernel, "ring")
        kernel.ok("%tfcluster shutdown")
    figures = []
    for size, name, bar_go, bar_python in ((SMALL, "4 KB", 100e-6, 250e-6), (LARGE, "16 MB", 3e-3, 5e-3)):
        reference = f"TensorFlow's ring {_ms(ring[size])}; gloo {_ms(GLOO[size])} (quoted)"
        for language, ours, bar in (("Go", go["2", size], bar_go), ("Python", python[size], bar_python)):
            compared = f"{ring[size] / ours:.0f} ×"
            what = f"all-reduce of {name} from {language}, two tasks"
            figures.append(Figure(12, what, reference, _ms(ours), compared, _ms(bar), ours <= bar))
    for language, two, many in (("Go", go["2", LARGE], go["4", LARGE]), ("Python", python[LARGE], four[LARGE])):
        what = f"all-reduce of 16 MB from {language}, four tasks"
        holds = many <= 2 * two if _FREE else None
        compared, bar = f"÷ = {many / two:.1f}", "2 × with free cores"
        figures.append(Figure(12, what, f"two tasks {_ms(two)}", _ms(many), compared, bar, holds))
    return figures


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _go() -> dict[tuple[str, int], float]:
    """Seconds by number of ranks and size."""
    if not shutil.which("go"):
        raise Missing("go is missing")
    command = ["go", "test", "-run", "^$", "-bench", "AllReduce/one_host", "-benchtime", "2s", "./rdma/collective"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
    found = re.findall(r"one_host/(\d+)/(\d+)\S*\s+\d+\s+([\d.]+) ns/op", done.stdout)
    if not found:
        raise BenchError(f"the benchmark in Go: {done.stdout[-500:]} {done.stderr[-500:]}")
    return {(ranks, int(size)): float(ns) / 1e9 for ranks, size, ns in found}


def _run(kernel: Kernel, program: str) -> dict[int, float]:
    """The slowest task's median, by size."""
    cell = kernel.ok(RUN.format(program=program))
    said = re.search(r"said (\{[^}]*\})", cell.text)
    if said is None:
        raise BenchError(f"the cell printed no numbers: {cell.all}")
    return {int(size): float(seconds) for size, seconds in json.loads(said[1]).items()}


# An MLP of 20 M parameters, 32 records a task: what a step takes under both ways to train it.
LARGE_MODEL = """
def trained(args, ctx):
    import contextlib, time
    import keras, numpy as np, tensorflow as tf, tfcluster
    mirrored = "mirrored" in args
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if mirrored else None
    optimizer = keras.optimizers.SGD(1e-3)
    with strategy.scope() if mirrored else contextlib.nullcontext():
        dense = keras.layers.Dense
        model = keras.Sequential([keras.layers.Input((784,)), dense(4096, "relu"), dense(4096, "relu"), dense(10)])
        model.compile(optimizer if mirrored else tfcluster.DistributedOptimizer(optimizer), "mse")
    records = 32 * 25 * (2 if mirrored else 1)
    x = np.random.default_rng(ctx.worker_num).normal(size=(records, 784)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :10])).batch(64 if mirrored else 32)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    ends = []
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter()))
    model.fit(data.with_options(options), verbose=0, callbacks=[note])
    took = sorted(b - a for a, b in zip(ends[4:], ends[5:]))
    if not mirrored:
        import tfcluster.collective as collective
        sums = collective.all_gather(np.array([[float(np.abs(w).sum()) for w in model.get_weights()]]))
        assert (sums == sums[0]).all() and model.count_params() > 20_000_000
    return {0: took[len(took) // 2]}
"""


def optimizer(place: Workplace, options: Options) -> list[Figure]:
    """Seconds of a training step with DistributedOptimizer and under MultiWorkerMirroredStrategy."""
    with place.kernel("tfcluster") as kernel:
        kernel.ok("%tfcluster reserve --workers 2\n" + LARGE_MODEL)
        seconds: dict[str, list[float]] = {"mirrored": [], "ours": []}
        for way in ("mirrored", "ours") * (1 if options.quick else 3):
            options.say(f"optimizer: {way}")
            seconds[way].append(_run(kernel, f"trained {way}")[0])
        kernel.ok("%tfcluster shutdown")
    theirs, ours = (sorted(of)[len(of) // 2] for of in seconds.values())
    what = "step of an MLP of 20 M parameters, two tasks of 32 records"
    reference = f"MultiWorkerMirrored {_ms(theirs)}"
    return [Figure(12, what, reference, _ms(ours), f"÷ = {ours / theirs:.2f}", "0.5 ×", ours <= theirs / 2)]
