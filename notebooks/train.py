"""The quickstart's training as a script: tfcluster run --workers 2 train.py 6."""

from __future__ import annotations

import sys

import keras
import mnist
import tensorflow as tf
import tfcluster


def main(epochs: int) -> None:
    """Train on this worker's share, all workers in step."""
    ctx = tfcluster.context()
    (x, y), (x_test, y_test) = mnist.load()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((28, 28, 1)),
                keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(2e-3),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    print(f"{ctx.job_name}:{ctx.task_index} of {ctx.num_workers} trains on {len(x)} images", file=sys.stderr)
    model.fit(x, y, batch_size=128, epochs=epochs, verbose=0)
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    print(f"accuracy {accuracy:.3f}", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]))
