"""A small training loop of one worker and one thread that times its own steps: step_program.py STEPS.

It knows nothing of who started it: TF_CONFIG says where it stands.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

import tensorflow as tf

WARM_UP = 100


def main(steps: int) -> None:
    """Train, then print seconds a step and CPU seconds a step."""
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("TF_CONFIG is not set")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.random.set_seed(1)
    x = tf.random.normal((128, 256))
    y = tf.random.uniform((128,), maxval=10, dtype=tf.int32)
    shapes = [(256, 256), (256, 256), (256, 10)]
    with strategy.scope():
        weights = [tf.Variable(tf.random.normal(shape, stddev=0.05)) for shape in shapes]

    def replica(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(x @ weights[0])
            logits = tf.nn.relu(hidden @ weights[1]) @ weights[2]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, weights))
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return strategy.run(replica, args=(x, y))

    for _ in range(WARM_UP):
        loss = strategy.experimental_local_results(step(x, y))[0].numpy()
    times = []
    cpu = time.process_time()
    for _ in range(steps):
        began = time.perf_counter()
        loss = strategy.experimental_local_results(step(x, y))[0].numpy()
        times.append(time.perf_counter() - began)
    cpu = time.process_time() - cpu
    figures = {"median": statistics.median(times), "mean": statistics.fmean(times), "cpu": cpu / steps}
    print("steps", json.dumps({**figures, "loss": float(loss)}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
