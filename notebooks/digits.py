"""Trains on the digits with two workers and evaluates each checkpoint on an evaluator: digits.py:main_fun."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import keras
import mnist
import tensorflow as tf


def main_fun(args: dict[str, Any], ctx: Any) -> dict[str, float] | None:
    """Run the part of this task's role: training on the workers, evaluation on the evaluator."""
    if ctx.job_name == "evaluator":
        evaluate(ctx)
        return None
    return train(args, ctx)


def train(args: dict[str, Any], ctx: Any) -> dict[str, float]:
    """Train a network of args["units"] units for args["epochs"] epochs; the chief saves it after each epoch."""
    (x, y), (x_test, y_test) = mnist.load()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((28, 28, 1)),
                keras.layers.Flatten(),
                keras.layers.Dense(args["units"], activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(args["learning_rate"]),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )

    save = keras.callbacks.ModelCheckpoint(f"{ctx.checkpoint_dir}/epoch-{{epoch:03d}}.keras")
    try:
        model.fit(x, y, batch_size=128, epochs=args["epochs"], verbose=0, callbacks=[save] if ctx.is_chief else [])
    except SystemExit:  # `stop`: both workers are here after the same batch, and have 30 s
        if ctx.is_chief:
            model.save(f"{ctx.export_dir}/stopped.keras")
            print("stopped: the model is saved", file=sys.stderr)
        raise
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    return {"accuracy": float(accuracy)}


def evaluate(ctx: Any) -> None:
    """Evaluate each checkpoint of the run until training has ended."""
    _, (x_test, y_test) = mnist.load()
    for path in ctx.checkpoints():
        epoch = int(pathlib.Path(path).stem.removeprefix("epoch-"))
        loss, accuracy = keras.models.load_model(path).evaluate(x_test, y_test, verbose=0)
        ctx.report(step=32 * epoch, loss=loss, accuracy=accuracy)
        print(f"epoch {epoch}: accuracy {accuracy:.3f} on {len(x_test)} test images", file=sys.stderr)
