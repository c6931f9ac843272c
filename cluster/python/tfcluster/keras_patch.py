"""Keras 3's fit, evaluate and predict under MultiWorkerMirroredStrategy.

Keras 3 fails there in two places (keras#20585):

- To find the model's shapes it reduces the first batch over all replicas. A batch is
  per replica and may be of integers or strings, or empty: it has no mean. The shapes of
  this worker's part are sufficient.
- It averages a step's logs, which are scalars, along an axis.

A third fault is silent: every worker's BackupAndRestore and ModelCheckpoint write
the same files at the same time. Here the chief writes them, and the others write to
a temporary folder: all must save, because reading some variables is a collective
operation. A file is written to a temporary name and renamed, so that a task that is
ended while it saves leaves the previous checkpoint.

Two more changes:

- In Keras 3 each worker has its own values of a layer's other variables
  (BatchNormalization's moving averages). They are averaged before validation, before
  a checkpoint and at the end of fit, so that every worker has the same model.
- Several steps per execution cannot be compiled under this strategy: each step is
  executed separately, and a line reports it.

Keras is patched only if its source has the fault, and the patches act only under a
MultiWorkerMirroredStrategy of several workers.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tfcluster import hooks
from tfcluster.keras_replicas import average_kept_values, spans_workers, strategy_of, writes_here

TRAINER = "keras.src.backend.tensorflow.trainer"
BACKUP = "keras.src.callbacks.backup_and_restore"
SAVING = "keras.src.saving.saving_api"
CHECKPOINT = "keras.src.callbacks.model_checkpoint"

_FAULTY_BUILD = 'reduce(\n                        "MEAN"'
_FAULTY_REDUCTION = 'strategy.reduce("MEAN", v, axis=0)'


def install() -> None:
    """Patches Keras, now or after its import."""
    hooks.when_imported(TRAINER, patch_trainer)
    hooks.when_imported(BACKUP, patch_backup)
    hooks.when_imported(CHECKPOINT, patch_checkpoint)
    hooks.when_imported(SAVING, patch_saving)


# ---------------------------------------------------------------- trainer


def patch_trainer(trainer: ModuleType) -> None:
    """Fixes the two faults in TensorFlowTrainer's module, each if it is present; adapts fit and evaluate."""
    cls = trainer.TensorFlowTrainer
    if _has(cls._maybe_symbolic_build, _FAULTY_BUILD):
        cls._maybe_symbolic_build = _build_from_local_part(cls._maybe_symbolic_build)
    if _has(trainer.reduce_per_replica, _FAULTY_REDUCTION):
        trainer.reduce_per_replica = _reduce_scalars(trainer.reduce_per_replica)
    cls.fit = _fit(cls.fit)
    cls.evaluate = _evaluate(cls.evaluate)


def _has(function: Callable[..., Any], faulty: str) -> bool:
    try:
        return faulty in inspect.getsource(function)
    except (OSError, TypeError):
        return False


def _build_from_local_part(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = self._distribute_strategy
        if not spans_workers(strategy):
            original(self, iterator=iterator, data_batch=data_batch)
            return
        if iterator is not None:
            for _, _, batches in iterator:
                data_batch = _local_part(strategy, next(batches))
                break
        original(self, data_batch=data_batch)

    return _maybe_symbolic_build


def _local_part(strategy: Any, batch: Any) -> Any:
    """Returns the part of a distributed batch for one of this worker's replicas."""
    import tensorflow as tf
    from keras.src import tree

    def first(value: Any) -> Any:
        if isinstance(value, tf.distribute.DistributedValues):
            return strategy.experimental_local_results(value)[0]
        return value

    return tree.map_structure(first, batch)


def _reduce_scalars(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if not spans_workers(strategy) or reduction not in ("auto", "mean", "sum"):
            return original(values, strategy, reduction)
        from keras.src import tree

        operation = "SUM" if reduction == "sum" else "MEAN"
        return tree.map_structure(lambda v: strategy.reduce(operation, v, axis=None), values)

    return reduce_per_replica


def _fit(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        _one_step_per_execution(self)
        history = original(self, *args, **kwargs)
        if spans_workers(strategy_of(self)):
            average_kept_values(self)
        return history

    return fit


def _evaluate(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
        _one_step_per_execution(self)
        if spans_workers(strategy_of(self)):
            average_kept_values(self)
        return original(self, *args, **kwargs)

    return evaluate


def _one_step_per_execution(model: Any) -> None:
    if spans_workers(strategy_of(model)) and getattr(model, "steps_per_execution", 1) != 1:
        print("tfcluster: steps_per_execution is 1: TensorFlow cannot compile more under MultiWorkerMirrored")
        model.steps_per_execution = 1
        model.train_function = model.test_function = model.predict_function = None


# -------------------------------------------------------------- callbacks


_EPOCH_IN_PLACE = 'File(self._training_metadata_path, "w")'


def patch_backup(module: ModuleType) -> None:
    """Makes only one worker write a backup, its epoch to a temporary file, and remove it at the end."""
    cls = module.BackupAndRestore
    save, train_end = cls._save_model, cls.on_train_end
    if _has(save, _EPOCH_IN_PLACE):
        save = _epoch_aside(save, getattr(module.file_utils, "is_remote_path", None))  # since Keras 3.3

    @functools.wraps(save)
    def _save_model(self: Any) -> None:
        average_kept_values(self.model)
        with _aside(self.model, self, _BACKUP_PATHS):
            save(self)

    @functools.wraps(train_end)
    def on_train_end(self: Any, logs: Any = None) -> None:
        if writes_here(self.model):
            train_end(self, logs)

    cls._save_model, cls.on_train_end = _save_model, on_train_end


def _epoch_aside(save: Callable[..., None], is_remote: Callable[[str], bool] | None) -> Callable[..., None]:
    """Returns a function that writes a backup with its epoch in a temporary file, and renames that file.

    Written in place, the file is empty for a moment: a task that is ended then leaves an
    unreadable backup.
    """

    @functools.wraps(save)
    def _save_model(self: Any) -> None:
        path = os.fspath(self._training_metadata_path)
        if "://" in path or (is_remote is not None and is_remote(path)):
            save(self)
            return
        # Only one task writes here, so the name is fixed. The agent does not send files named .NUMBER-NAME.
        aside = os.path.join(os.path.dirname(path), f".0-{os.path.basename(path)}")
        if self.double_checkpoint and os.path.exists(path):
            shutil.copyfile(path, aside)  # Keras copies an existing file
        self._training_metadata_path = aside
        try:
            save(self)
        finally:
            self._training_metadata_path = path
        os.replace(aside, path)

    return _save_model


_BACKUP_PATHS = (
    "backup_dir",
    "_weights_path",
    "_training_metadata_path",
    "_prev_weights_path",
    "_prev_training_metadata_path",
)


def patch_checkpoint(module: ModuleType) -> None:
    """Makes only one worker write a checkpoint."""
    cls = module.ModelCheckpoint
    save = cls._save_model

    @functools.wraps(save)
    def _save_model(self: Any, *args: Any, **kwargs: Any) -> None:
        average_kept_values(self.model)
        with _aside(self.model, self, ("filepath",)):
            save(self, *args, **kwargs)

    cls._save_model = _save_model


@contextlib.contextmanager
def _aside(model: Any, callback: Any, paths: tuple[str, ...]) -> Iterator[None]:
    """Makes a callback write to a temporary folder in this context, unless this worker's files are kept."""
    if writes_here(model):
        yield
        return
    folder = tempfile.mkdtemp(prefix="tfcluster-not-chief-")
    kept = {name: getattr(callback, name) for name in paths}
    try:
        for name, path in kept.items():
            setattr(callback, name, os.path.join(folder, os.path.basename(str(path).rstrip("/"))))
        if "backup_dir" in kept:
            callback.backup_dir = folder
        yield
    finally:
        for name, path in kept.items():
            setattr(callback, name, path)
        shutil.rmtree(folder, ignore_errors=True)


# ----------------------------------------------------------------- saving


def patch_saving(module: ModuleType) -> None:
    """Makes save and save_weights write a local file to a temporary name and rename it.

    An evaluator thus sees complete checkpoints only, and an earlier file is kept until then.
    """
    for name in ("save_model", "save_weights"):
        setattr(module, name, _replacing(getattr(module, name)))


def _replacing(save: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(save)
    def saved(model: Any, filepath: Any, overwrite: bool = True, **kwargs: Any) -> Any:
        path = os.fspath(filepath) if isinstance(filepath, str | os.PathLike) else ""
        asked = any(value is not None for value in kwargs.values())  # Model.save passes its defaults
        plain = path.endswith((".keras", ".weights.h5")) and "://" not in path and not asked
        folder = os.path.dirname(path) or os.curdir
        taken = os.path.exists(path) and (not overwrite or not os.path.isfile(path))
        if not plain or taken or not os.path.isdir(folder):
            return save(model, filepath, overwrite=overwrite, **kwargs)
        aside = os.path.join(folder, f".{os.getpid()}-{os.path.basename(path)}")
        try:
            result = save(model, aside, overwrite=True)
            os.replace(aside, path)
            return result
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)

    return saved
