"""Progress of Keras's fit, without changes of the program.

A callback is added to every Model.fit of Keras 3, on each backend, and of tf_keras.
It reports step, epoch and metrics to the agent at most five times a second and
never blocks. Under ParameterServerStrategy, where Keras forbids callbacks for
batches, it reports epochs only.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tfcluster import activity, hooks, keras_callbacks
from tfcluster.activity import marked
from tfcluster.channel import REPORT_INTERVAL, Channel, number

TRAINERS = {"tensorflow": "TensorFlowTrainer", "jax": "JAXTrainer", "torch": "TorchTrainer"}
"""The class with fit and evaluate, by Keras' backend."""
SAVING = {"save": activity.CHECKPOINT, "save_weights": activity.CHECKPOINT, "export": activity.EXPORT}
"""The phases of the program that methods of a model are."""


def install(channel: Channel) -> None:
    """Adds the callback to fit, now or after Keras's import."""

    def patch_keras(module: ModuleType, name: str) -> None:
        from keras.src.callbacks import Callback, CallbackList

        trainer = getattr(module, name)
        trainer.fit = _with_callback(trainer.fit, Callback, CallbackList, channel)
        trainer.evaluate = _with_result(trainer.evaluate, channel)

    def patch_tf_keras(module: ModuleType) -> None:
        from tf_keras.src.callbacks import Callback, CallbackList

        module.Model.fit = _with_callback(module.Model.fit, Callback, CallbackList, channel)
        module.Model.evaluate = _with_result(module.Model.evaluate, channel)

    def patch_saving(module: ModuleType) -> None:
        for method, phase in SAVING.items():
            setattr(module.Model, method, marked(getattr(module.Model, method), channel.activity, phase))

    for backend, name in TRAINERS.items():
        hooks.when_imported(f"keras.src.backend.{backend}.trainer", functools.partial(patch_keras, name=name))
    hooks.when_imported("tf_keras.src.engine.training", patch_tf_keras)
    hooks.when_imported("tf_keras.src.engine.training", patch_saving)
    hooks.when_imported("keras.src.models.model", patch_saving)


def _with_result(evaluate: Callable[..., Any], channel: Channel) -> Callable[..., Any]:
    """Returns an evaluate that keeps the metrics of the last evaluation, for `%tfcluster evaluate DATA`."""

    @functools.wraps(evaluate)
    def evaluate_and_keep(self: Any, *args: Any, **kwargs: Any) -> Any:
        with channel.activity.during(activity.VALIDATION):
            found = evaluate(self, *args, **kwargs)
        with contextlib.suppress(Exception):  # a metric may be anything
            metrics = self.get_metrics_result()
            channel.evaluated = {str(name): n for name, v in metrics.items() if (n := number(v)) is not None}
        return found

    return evaluate_and_keep


def _with_callback(fit: Callable[..., Any], base: type, list_type: type, channel: Channel) -> Callable[..., Any]:
    signature = inspect.signature(fit)
    epochs_only, every_batch = make_callbacks(base, channel)
    phases = make_phases(base, channel)

    @functools.wraps(fit)
    def fit_and_tell(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = getattr(self, "distribute_strategy", None)
        forbidden = "ParameterServer" in type(strategy).__name__
        ours = (epochs_only if forbidden else every_batch)()
        try:
            given = signature.bind(self, *args, **kwargs)
        except TypeError:
            return fit(self, *args, **kwargs)  # raises the error of the call
        theirs = given.arguments.get("callbacks")
        counted = contextlib.nullcontext() if forbidden else channel.steps.fitting()
        first = [] if forbidden else [phases(ours)]
        with keras_callbacks.added(theirs, list_type, self, first, [ours]) as callbacks, counted:
            given.arguments["callbacks"] = callbacks
            return fit(*given.args, **given.kwargs)

    return fit_and_tell


def make_callbacks(base: type, channel: Channel) -> tuple[type, type]:
    """Returns two classes of callbacks for a Keras's Callback class: for epochs only, and for every batch."""

    class EpochProgress(base):  # type: ignore[misc, valid-type]
        """A callback that reports the end of each epoch."""

        async_safe = True  # Keras does not wait for a batch's callbacks

        def __init__(self) -> None:
            super().__init__()
            self._epoch = 0
            self._before = 0  # steps of the epochs before this one
            self._batches = 0  # steps of this one
            self._reported = 0.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._epoch = epoch
            self._before = epoch * self._steps() or self._before + self._batches
            self._batches = 0

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._report(self._steps() or self._batches, logs)

        def _steps(self) -> int:
            """Returns the steps of an epoch; 0 if unknown."""
            return int((self.params or {}).get("steps") or 0)

        def _report(self, step_in_epoch: int, logs: Mapping[str, Any] | None) -> None:
            steps, epochs = self._steps(), int((self.params or {}).get("epochs") or 0)
            fields: dict[str, Any] = {"source": "keras", "epoch": self._epoch + 1, "total_epochs": epochs}
            if step_in_epoch:
                fields["step"] = self._before + step_in_epoch
            if steps:
                fields["total_steps"] = epochs * steps
            values: dict[str, float] = {}
            for name, value in (logs or {}).items():
                with contextlib.suppress(Exception):  # a metric may be anything
                    if (n := number(value)) is not None:
                        values[str(name)] = n
            channel.report(fields, values)

    class BatchProgress(EpochProgress):
        """A callback that reports batches, too, and counts them: a task stops between two batches."""

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            channel.steps.next_batch()  # on_train_batch_end may be called by a thread of Keras'
            channel.activity.batch_begins()

        def step_of(self, batch: int) -> int:
            """Returns the number of the step that a batch of this epoch is."""
            return self._before + batch + 1

        def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
            channel.steps.next_batch()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._batches = batch + 1
            now = time.monotonic()
            if now - self._reported >= REPORT_INTERVAL:
                self._reported = now
                self._report(batch + 1, logs)

    return EpochProgress, BatchProgress


def make_phases(base: type, channel: Channel) -> type:
    """Returns the class of the callback that marks steps and phases. It is the first: others may take long.

    Under ParameterServerStrategy there is none: without batches there would be no steps for hours.
    """

    class Phases(base):  # type: ignore[misc, valid-type]
        """A callback that marks the steps and phases of fit."""

        async_safe = True

        def __init__(self, progress: Any) -> None:
            super().__init__()
            self._progress = progress

        def on_train_begin(self, logs: Any = None) -> None:
            channel.activity.enter(activity.FIRST_STEP)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            channel.activity.batch_ended(self._progress.step_of(batch))

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            channel.activity.mark()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            channel.activity.enter(activity.BETWEEN_EPOCHS)

        def on_train_end(self, logs: Any = None) -> None:
            channel.activity.enter(activity.AFTER_TRAINING)

    return Phases
