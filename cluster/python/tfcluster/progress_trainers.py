"""Progress of Lightning's Trainer.fit and Hugging Face's Trainer.train, without changes of the program.

As in progress, for Keras, a callback is added for the time of the call. It reports step, epoch and metrics to
the agent, and counts batches, so that all tasks stop between the same two batches.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from tfcluster import activity, hooks
from tfcluster.channel import REPORT_INTERVAL, Channel, number

LIGHTNING_SINCE, TRANSFORMERS_SINCE = 2, 4
"""The oldest major versions with the callbacks that are known here."""


def install(channel: Channel) -> None:
    """Adds the callbacks, now or after the import of a trainer."""
    for package in ("lightning.pytorch", "pytorch_lightning"):
        hook = functools.partial(_patch_lightning, package=package, channel=channel)
        hooks.when_imported(f"{package}.trainer.trainer", hook)
    hooks.when_imported("transformers.trainer", functools.partial(_patch_transformers, channel=channel))


def _patch_lightning(module: ModuleType, package: str, channel: Channel) -> None:
    if not _supported(package.partition(".")[0], LIGHTNING_SINCE):
        return
    progress = make_lightning_callback(importlib.import_module(f"{package}.callbacks").Callback, channel)

    @contextlib.contextmanager
    def added(trainer: Any) -> Iterator[None]:
        callback = progress()
        trainer.callbacks.insert(0, callback)  # ModelCheckpoint stays the last, as Lightning wants it
        try:
            yield
        finally:
            trainer.callbacks[:] = [other for other in trainer.callbacks if other is not callback]

    module.Trainer.fit = _reporting(module.Trainer.fit, added, channel)  # type: ignore[attr-defined]


def _patch_transformers(module: ModuleType, channel: Channel) -> None:
    if not _supported("transformers", TRANSFORMERS_SINCE):
        return
    base = importlib.import_module("transformers.trainer_callback").TrainerCallback
    progress = make_transformers_callback(base, channel)

    @contextlib.contextmanager
    def added(trainer: Any) -> Iterator[None]:
        callback = progress()
        trainer.add_callback(callback)
        try:
            yield
        finally:
            trainer.remove_callback(callback)

    module.Trainer.train = _reporting(module.Trainer.train, added, channel)  # type: ignore[attr-defined]


def _supported(package: str, since: int) -> bool:
    """Reports whether this version has the callbacks that are known here; prints a line if it has not."""
    version = str(getattr(sys.modules[package], "__version__", ""))
    major = version.partition(".")[0]
    if major.isdigit() and int(major) >= since:
        return True
    print(
        f"tfcluster: no progress of {package} {version or 'without a version'}: it needs {since} or later",
        file=sys.stderr,
    )
    return False


def _reporting(
    train: Callable[..., Any], added: Callable[[Any], contextlib.AbstractContextManager[None]], channel: Channel
) -> Callable[..., Any]:
    @functools.wraps(train)
    def train_and_report(self: Any, *args: Any, **kwargs: Any) -> Any:
        with added(self), channel.steps.fitting():
            return train(self, *args, **kwargs)

    return train_and_report


class _Reporter:
    """A sender of one trainer's reports: at most one for each interval, unless it is urgent."""

    def __init__(self, source: str, channel: Channel) -> None:
        self._source = source
        self._channel = channel
        self._reported = -math.inf

    def due(self) -> bool:
        """Reports whether the last report is an interval old."""
        return time.monotonic() - self._reported >= REPORT_INTERVAL

    def report(self, counts: Mapping[str, int], metrics: Mapping[str, Any]) -> None:
        """Sends the counts that are known, which are not 0, and the metrics that are numbers."""
        self._reported = time.monotonic()
        values: dict[str, float] = {}
        for name, value in metrics.items():
            with contextlib.suppress(Exception):  # a metric may be anything
                if (n := number(value)) is not None:
                    values[str(name)] = n
        fields = {name: count for name, count in counts.items() if count}
        self._channel.report({"source": self._source, **fields}, values)


def make_lightning_callback(base: type, channel: Channel) -> type:
    """Returns the class of the callback for a Lightning's Callback class. Its steps are batches."""

    class Progress(base):  # type: ignore[misc, valid-type]
        """A callback that reports batches and epochs of training."""

        def __init__(self) -> None:
            super().__init__()
            self._reporter = _Reporter("lightning", channel)
            self._before = ""  # the phase before validation

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            channel.activity.enter(activity.FIRST_STEP)

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            channel.steps.next_batch()
            channel.activity.batch_begins()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            channel.activity.batch_ended(trainer.fit_loop.total_batch_idx + 1)
            if self._reporter.due():  # reading a metric on a GPU waits for it
                self._reporter.report(lightning_counts(trainer), trainer.callback_metrics)

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            self._before = channel.activity.phase
            channel.activity.enter(activity.VALIDATION)

        def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
            channel.activity.mark()

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            channel.activity.enter(self._before)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            channel.activity.enter(activity.BETWEEN_EPOCHS)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            channel.activity.enter(activity.AFTER_TRAINING)
            self._reporter.report(lightning_counts(trainer), trainer.callback_metrics)

    return Progress


def lightning_counts(trainer: Any) -> dict[str, int]:
    """Returns the position of a Trainer of Lightning; 0 for unknown counts, such as a stream's length."""
    batches = trainer.num_training_batches
    batches = int(batches) if math.isfinite(batches) else 0
    epochs = max(trainer.max_epochs or 0, 0)
    total = batches * epochs
    if trainer.max_steps > 0:
        limit = trainer.max_steps * trainer.accumulate_grad_batches
        total = min(total or limit, limit)
    step = trainer.fit_loop.total_batch_idx + 1
    epoch = -(-step // batches) if batches else trainer.current_epoch + 1
    return {"step": step, "total_steps": total, "epoch": epoch, "total_epochs": epochs}


def make_transformers_callback(base: type, channel: Channel) -> type:
    """Returns the callback's class for a Transformers' TrainerCallback. Its steps are the optimizer's."""

    class Progress(base):  # type: ignore[misc, valid-type]
        """A callback that reports steps, and the trainer's logs."""

        def __init__(self) -> None:
            super().__init__()
            self._reporter = _Reporter("transformers", channel)

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            channel.activity.enter(activity.FIRST_STEP)

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            channel.steps.next_batch()
            channel.activity.batch_begins()

        def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            channel.activity.enter(activity.VALIDATION)

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            channel.activity.enter(activity.BETWEEN_EPOCHS)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            channel.activity.enter(activity.BETWEEN_EPOCHS)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            channel.activity.batch_ended(int(state.global_step))
            if self._reporter.due():
                self._reporter.report(transformers_counts(state), {})

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            self._reporter.report(transformers_counts(state), logs or {})

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            channel.activity.enter(activity.AFTER_TRAINING)
            self._reporter.report(transformers_counts(state), {})

    return Progress


def transformers_counts(state: Any) -> dict[str, int]:
    """Returns the position in a TrainerState of Transformers."""
    return {
        "step": int(state.global_step),
        "total_steps": max(int(state.max_steps), 0),
        "epoch": math.ceil(state.epoch or 0),
        "total_epochs": max(int(state.num_train_epochs), 0),
    }
