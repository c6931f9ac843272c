"""The copies of a Keras model that the tasks of a run train together.

There are two ways: MultiWorkerMirroredStrategy, and tfcluster.DistributedOptimizer on a model without a
strategy.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import Any, Protocol


class Replicas(Protocol):
    """One task's view of all copies. Every task makes the same calls in the same order."""

    writes_here: bool
    """True if this task's files are kept."""

    def average(self, model: Any, variables: Sequence[Any]) -> None:
        """Sets variables of this task's copy to their mean over all copies."""


def of(model: Any) -> Replicas | None:
    """Returns the copies of a model; None for a model that this task trains alone.

    Raises ValueError if both ways are used.
    """
    strategy = strategy_of(model)
    grouped = bool(optimizers_of(model))
    if not spans_workers(strategy):
        from tfcluster import collective

        return Grouped() if grouped and collective.trains_with_others() else None
    if grouped:
        raise ValueError(
            "DistributedOptimizer and MultiWorkerMirroredStrategy would both reduce the gradients: use one of them"
        )
    return Mirrored(strategy)


def optimizers_of(model: Any) -> list[Any]:
    """Returns the optimizers of a model for which DistributedOptimizer was called.

    A model with a training step of its own may have several, as attributes.
    """
    found = {id(value): value for value in vars(model).values() if _reduces(value)}
    return list(found.values())


def _reduces(value: Any) -> bool:
    return is_distributed(value) or is_distributed(getattr(value, "inner_optimizer", None))


def is_distributed(optimizer: Any) -> bool:
    """Reports whether DistributedOptimizer has returned this optimizer."""
    module = sys.modules.get("tfcluster.distributed_optimizer")  # not imported: there is none
    return module is not None and isinstance(optimizer, module.Distributed)


def strategy_of(model: Any) -> Any:
    """Returns the tf.distribute strategy of the scope in which a model was made."""
    return getattr(model, "_distribute_strategy", None)


def spans_workers(strategy: Any) -> bool:
    """Reports whether a strategy is MultiWorkerMirrored with several workers."""
    extended = getattr(strategy, "extended", None)
    in_multi_worker_mode = getattr(extended, "_in_multi_worker_mode", None)
    return type(extended).__name__ == "CollectiveAllReduceExtended" and bool(
        in_multi_worker_mode and in_multi_worker_mode()
    )


def writes_here(model: Any) -> bool:
    """Reports whether this task's files are kept."""
    replicas = of(model)
    return replicas is None or replicas.writes_here


def average_kept_values(model: Any) -> None:
    """Sets the variables that layers keep beside their weights to the mean over all copies.

    All tasks must call it. Without such variables it sends nothing.
    """
    replicas = of(model)
    if replicas is None:
        return
    kept = [v for v in _kept(model) if v.aggregation == "none" and "float" in str(v.dtype)]
    if kept:
        replicas.average(model, kept)


def _kept(model: Any) -> list[Any]:
    """Returns the variables that were made not trainable, without frozen weights, which are equal."""
    of_layers = [v for layer in model._flatten_layers() for v in layer._non_trainable_variables]
    kept = {id(v) for v in of_layers}
    return [v for v in model.non_trainable_variables if id(v) in kept]


class Grouped:
    """The copies of a model with a DistributedOptimizer."""

    @property
    def writes_here(self) -> bool:
        """Reports whether this task is the first one."""
        from tfcluster import collective

        return collective.rank() == 0

    def average(self, model: Any, variables: Sequence[Any]) -> None:
        """Averages the values by a collective call."""
        from keras import ops

        from tfcluster import collective

        means = collective.all_reduce([ops.convert_to_numpy(v) for v in variables], op="mean")
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)


class Mirrored:
    """The copies of a model under MultiWorkerMirroredStrategy."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy

    @property
    def writes_here(self) -> bool:
        """Reports whether the strategy makes this task write checkpoints."""
        return bool(self._strategy.extended.should_checkpoint)

    def average(self, model: Any, variables: Sequence[Any]) -> None:
        """Reduces the values in a function that is traced once for each model."""
        of, means = _means.get(model, ([], None))
        if means is None or [id(v) for v in of] != [id(v) for v in variables]:
            means = _means_of(variables, self._strategy)
            _means[model] = variables, means
        for variable, mean in zip(variables, means(), strict=True):
            variable.value.assign(mean)


# By model: the averaged variables, and the function that averages them.
_means: weakref.WeakKeyDictionary[Any, tuple[Sequence[Any], Any]] = weakref.WeakKeyDictionary()


def _means_of(variables: Sequence[Any], strategy: Any) -> Any:
    import tensorflow as tf

    @tf.function
    @tf.autograph.experimental.do_not_convert
    def means() -> list[Any]:
        here = strategy.run(lambda: [tf.identity(v.value) for v in variables])
        return [strategy.reduce("MEAN", value, axis=None) for value in here]

    return means
