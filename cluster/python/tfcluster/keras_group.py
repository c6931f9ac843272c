"""The changes to Keras for a model with a DistributedOptimizer, beside the mean of the gradients.

- Before the first step every task gets the first task's weights, optimizer state and first epoch.
- At the end of an epoch the logs are means over all tasks before any other callback sees them, so that all
  tasks decide alike (EarlyStopping, ReduceLROnPlateau, ModelCheckpoint). If fit ends in one task, it ends in
  all.
- Moving averages become their means at the end of an epoch and before an evaluation. The results of an
  evaluation become means, too.

The first task alone writes checkpoints: see keras_patch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tfcluster import collective, hooks, keras_callbacks, keras_replicas, progress


@functools.cache
def install(prepare: Callable[[Any], None]) -> None:
    """Adapts Keras, once. prepare is called with a model before its training step is compiled."""
    for backend, name in progress.TRAINERS.items():
        adapt = functools.partial(_adapt_trainer, name=name, prepare=prepare)
        hooks.when_imported(f"keras.src.backend.{backend}.trainer", adapt)


def _adapt_trainer(module: ModuleType, name: str, prepare: Callable[[Any], None]) -> None:
    cls = getattr(module, name)
    cls.fit, cls.evaluate = _fit(cls.fit), _evaluate(cls.evaluate)
    cls.make_train_function = _make_train_function(cls.make_train_function, prepare)


def _in_group(model: Any) -> bool:
    return isinstance(keras_replicas.of(model), keras_replicas.Grouped)


def _fit(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _in_group(self):
            return original(self, *args, **kwargs)
        from keras.src.callbacks import CallbackList

        given = signature.bind(self, *args, **kwargs)
        first, last = _callbacks()
        theirs = given.arguments.get("callbacks")
        with keras_callbacks.added(theirs, CallbackList, self, [first()], [last()]) as callbacks:
            given.arguments["callbacks"] = callbacks
            return original(*given.args, **given.kwargs)

    return fit


def _evaluate(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _in_group(self):
            return original(self, *args, **kwargs)
        keras_replicas.average_kept_values(self)
        found = original(self, *args, **kwargs)
        if isinstance(found, Mapping):
            return _means(found)
        several = isinstance(found, list | tuple)
        means = list(_means(dict(enumerate(found if several else [found]))).values())
        return means if several else means[0]

    return evaluate


def _make_train_function(original: Callable[..., Any], prepare: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make_train_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        prepare(self)
        return original(self, *args, **kwargs)

    return make_train_function


def broadcast_model(model: Any, root: int = 0) -> None:
    """Sets the model and its optimizers in every task to the values of task root.

    fit does so before the first step. Without a run, and in a task that is no chief or worker, it does
    nothing.
    """
    from keras import ops

    if not collective.trains_with_others():
        return
    optimizers = keras_replicas.optimizers_of(model)
    if model.optimizer in optimizers and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    variables = [*model.weights, *(v for optimizer in optimizers for v in optimizer.variables)]
    values = collective.broadcast([ops.convert_to_numpy(v) for v in variables], root)
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _means(logs: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns the means of numbers and of arrays of numbers over all tasks; other values stay."""
    numbers = {name: array for name, value in logs.items() if (array := _numbers(value)) is not None}
    means = collective.all_reduce(list(numbers.values()), op="mean")
    return {**logs, **{name: m if m.ndim else float(m) for name, m in zip(numbers, means, strict=True)}}


def _numbers(value: Any) -> Any:
    """Returns a value as an array of float64; None if it is not numeric."""
    import numpy as np

    try:
        return None if value is None or isinstance(value, str) else np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None


@functools.cache
def _callbacks() -> tuple[type, type]:
    """Returns the classes of the callbacks before and after the program's."""
    import numpy as np
    from keras.callbacks import Callback

    class Means(Callback):
        """A callback that makes the values of an epoch the same in all tasks."""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            keras_replicas.average_kept_values(self.model)
            if logs:
                logs.update(_means(logs))

    class Group(Callback):
        """A callback that makes all tasks begin and end together.

        It comes after BackupAndRestore, which sets the first epoch and the weights.
        """

        def __init__(self) -> None:
            super().__init__()
            self._begun = False

        def on_train_begin(self, logs: Any = None) -> None:
            here = self.model._initial_epoch
            first = int(collective.broadcast(np.int64(-1 if here is None else here)))
            self.model._initial_epoch = None if first < 0 else first
            if self.model.built:
                self._begin()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if not self._begun:  # its first batch has built the model
                if hasattr(self.model, "jax_state_sync"):
                    self.model.jax_state_sync()
                self._begin()

        def _begin(self) -> None:
            broadcast_model(self.model)
            self._begun = True

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = bool(collective.all_reduce(np.int32(self.model.stop_training), op="max"))

    return Means, Group
