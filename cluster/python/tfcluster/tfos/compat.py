"""TensorFlowOnSpark's compat. TensorFlow is imported by the functions that need it."""

from __future__ import annotations

from typing import Any


def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
    """Exports a model as SavedModel to export_dir on the chief; every task must call it."""
    from tfcluster import context

    context.current().export_saved_model(model, export_dir)


def disable_auto_shard(options: Any) -> None:
    """Sets tf.data.Options not to shard: each task has its own records."""
    import tensorflow as tf

    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF


def is_gpu_available() -> bool:
    """Reports whether TensorFlow sees a GPU."""
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
