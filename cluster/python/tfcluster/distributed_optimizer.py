"""tfcluster.DistributedOptimizer: data-parallel training with plain Keras 3.

    model.compile(tfcluster.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss=...)
    model.fit(...)

Every task trains a copy of the model on its own data. Before the optimizer uses the gradients of a step, it
takes their mean over all tasks, in one collective call; with gradient_accumulation_steps once in so many
steps. The other changes of fit, such as the first broadcast and the means of metrics, are in keras_group.

The optimizer's class becomes a subclass of its class, and the optimizer stays the same object: isinstance,
its variables and its configuration do not change. The subclass has the name of its base, so a saved model
loads without tfcluster. The loaded optimizer is then a plain one and must be wrapped again.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfcluster import collective, keras_group, keras_replicas


class Distributed:
    """The common base of the optimizers that DistributedOptimizer returns."""

    tfcluster_reduces = True  # False while a LossScaleOptimizer applies its inner optimizer to the means


class _Optimizer(Distributed):
    """An optimizer that takes the mean where Keras clips gradients: once before each update of weights."""

    def _clip_gradients(self: Any, grads: Any) -> Any:
        if self.tfcluster_reduces:
            grads = _mean_in_update(self, list(grads))
        return super()._clip_gradients(grads)  # type: ignore[misc]

    def _overwrite_variables_directly_with_gradients(self: Any, grads: Any, vars: Any) -> Any:
        """Takes the maximum of the scales of float8, as Keras does. Keras takes them out before it clips."""
        scales = [g for g, v in zip(grads, vars, strict=True) if self._overwrite_variable_with_gradient(v)]
        if scales:
            maxima = iter(_reduced(scales, "max"))
            pairs = zip(grads, vars, strict=True)
            grads = [next(maxima) if self._overwrite_variable_with_gradient(v) else g for g, v in pairs]
        return super()._overwrite_variables_directly_with_gradients(grads, vars)  # type: ignore[misc]


class _Applied(Distributed):
    """An optimizer that takes the mean at once, for classes with their own apply, such as MultiOptimizer."""

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        return super().apply(_reduced(grads, "mean"), trainable_variables)  # type: ignore[misc]


class _LossScaleOptimizer(Distributed):
    """A LossScaleOptimizer that takes the mean before the gradients are checked for infinity.

    So all tasks skip the same steps. While gradients are accumulated, the tasks agree on the check alone, and
    the inner optimizer takes the mean.
    """

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        with self._tfcluster_reduced(grads, trainable_variables) as means:
            return super().apply(means, trainable_variables)  # type: ignore[misc]

    def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        with self._tfcluster_reduced(grads, None) as means:
            return super().stateless_apply(optimizer_variables, means, trainable_variables)  # type: ignore[misc]

    def check_finite(self: Any, grads: Any) -> Any:
        finite = super().check_finite(grads)  # type: ignore[misc]
        if not self.inner_optimizer.tfcluster_reduces or not collective.trains_with_others():
            return finite
        from keras import ops

        return ops.cast(collective.all_reduce(ops.cast(finite, "int32"), op="min"), "bool")

    @contextlib.contextmanager
    def _tfcluster_reduced(self: Any, grads: Any, variables: Any) -> Iterator[list[Any]]:
        """Yields the means. In this context the inner optimizer takes none."""
        grads, inner = list(grads), self.inner_optimizer
        if getattr(inner, "gradient_accumulation_steps", None):
            yield grads
            return
        variables = variables or self._trainable_variables
        scales = [self._overwrite_variable_with_gradient(v) for v in variables]
        means = _reduced([None if scale else g for g, scale in zip(grads, scales, strict=True)], "mean")
        object.__setattr__(inner, "tfcluster_reduces", False)
        try:
            yield [g if m is None else m for g, m in zip(grads, means, strict=True)]
        finally:
            object.__setattr__(inner, "tfcluster_reduces", True)


def DistributedOptimizer(optimizer: Any) -> Any:
    """Makes a Keras optimizer use the mean of all tasks' gradients, and returns it.

    All tasks of the run call fit, or the optimizer's apply, equally often. In a custom training loop call
    tfcluster.broadcast_model(model) before the first step.
    """
    from keras.optimizers import LossScaleOptimizer, Optimizer

    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"DistributedOptimizer takes an optimizer of Keras 3 (keras.optimizers), not {optimizer!r}")
    keras_group.install(_prepare)
    _adapt_loss_scale()
    if isinstance(optimizer, LossScaleOptimizer):
        DistributedOptimizer(optimizer.inner_optimizer)
    if not isinstance(optimizer, Distributed):
        object.__setattr__(optimizer, "__class__", _distributed(type(optimizer)))
    return optimizer


def _prepare(model: Any) -> None:
    """Turns a distributed model's jit_compile off on TensorFlow, before its training step is compiled.

    A change of compile would be too late: in model.compile(DistributedOptimizer(...)) Python looks the method
    up before this module can change it.
    """
    import keras

    if model.jit_compile and keras.backend.backend() == "tensorflow" and keras_replicas.optimizers_of(model):
        print("tfcluster: jit_compile is off: XLA cannot compile the call of DistributedOptimizer")
        model.jit_compile = False


@functools.cache
def _adapt_loss_scale() -> None:
    """Makes LossScaleOptimizer distributed if Keras puts it around a distributed one, for mixed_float16."""
    from keras.optimizers import LossScaleOptimizer

    for name in ("apply", "stateless_apply"):
        setattr(LossScaleOptimizer, name, _becoming_distributed(getattr(LossScaleOptimizer, name), name))


def _becoming_distributed(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, Distributed) or not keras_replicas.is_distributed(self.inner_optimizer):
            return original(self, *args, **kwargs)
        return getattr(DistributedOptimizer(self), name)(*args, **kwargs)

    return method


@functools.cache
def _distributed(cls: type) -> type:
    """Returns the distributed subclass of a class of optimizers."""
    from keras.src import api_export
    from keras.src.saving import object_registration

    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    subclass = type(cls.__name__, (_way(cls), cls), names)
    # The names under which Keras saves a class: its own, and those of register_keras_serializable.
    for module, table in ((api_export, "REGISTERED_OBJS_TO_NAMES"), (object_registration, "GLOBAL_CUSTOM_NAMES")):
        registered = getattr(module, table, {})
        if cls in registered:
            registered[subclass] = registered[cls]
    return subclass


def _way(cls: type) -> type:
    """Returns the base by which the optimizers of a class take the mean."""
    from keras.optimizers import LossScaleOptimizer
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    if issubclass(cls, LossScaleOptimizer):
        return _LossScaleOptimizer
    ours: Any = cls
    of_keras = ours._backend_apply_gradients.__module__.startswith("keras.src.")
    return _Optimizer if ours.apply is BaseOptimizer.apply and of_keras else _Applied


def _mean_in_update(optimizer: Any, grads: list[Any]) -> list[Any]:
    """Returns the mean of gradients.

    On JAX Keras computes an update in each step and keeps one in gradient_accumulation_steps: the mean is
    taken only for that.
    """
    import keras

    steps = optimizer.gradient_accumulation_steps
    if not steps or keras.backend.backend() != "jax":
        return _reduced(grads, "mean")
    import jax

    updates = (optimizer._iterations + 1) % steps == 0
    return list(jax.lax.cond(updates, lambda grads: _reduced(grads, "mean"), lambda grads: grads, grads))


def _reduced(grads: Sequence[Any], op: str) -> list[Any]:
    """Returns every task's gradients, combined; None where there is no gradient."""
    present = [_dense(g) for g in grads if g is not None]
    if present and collective.trains_with_others():
        present = collective.all_reduce(present, op=op)
    results = iter(present)
    return [None if g is None else next(results) for g in grads]


def _dense(gradient: Any) -> Any:
    """Returns a gradient as a tensor of the shape of its variable."""
    tf = sys.modules.get("tensorflow")
    if tf is not None and isinstance(gradient, tf.IndexedSlices):
        _say_once(f"a sparse gradient of shape {tuple(gradient.shape or ())} is sent as a dense one")
        return tf.convert_to_tensor(gradient)
    if getattr(gradient, "is_sparse", False):  # PyTorch's
        _say_once(f"a sparse gradient of shape {tuple(gradient.shape)} is sent as a dense one")
        return gradient.to_dense()
    return gradient


@functools.cache
def _say_once(text: str) -> None:
    print(f"tfcluster: {text}")
