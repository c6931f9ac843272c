"""Collective calls within compiled programs: tf.function and jax.jit.

The program's graph has one operation that calls back into Python, with all tensors of the call.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

Call = Callable[[list[Any]], list[Any]]
"""A function that maps NumPy arrays to arrays of the same shapes and types."""


def of(values: list[Any]) -> Callable[[Call, list[Any]], list[Any]] | None:
    """Returns the function that makes a call for values of a graph that is being built; None for others."""
    tf, jax = sys.modules.get("tensorflow"), sys.modules.get("jax")
    if tf is not None and any(tf.is_symbolic_tensor(v) or _read_in_graph(tf, v) for v in values):
        return _in_function
    if jax is not None and any(isinstance(v, jax.core.Tracer) for v in values):
        return _in_jit
    return None


def finish() -> None:
    """Waits for calls that programs of JAX have begun: a direct call must not overtake them."""
    jax = sys.modules.get("jax")
    if jax is not None and threading.current_thread() is threading.main_thread():  # others may run such a call
        jax.effects_barrier()


def _read_in_graph(tf: Any, value: Any) -> bool:
    """Reports whether a value is a variable that a graph reads."""
    return isinstance(value, tf.Variable) and not tf.executing_eagerly()


def _in_function(call: Call, values: list[Any]) -> list[Any]:
    """Adds a call to a tf.function. It is stateful: TensorFlow keeps the order of calls and makes each."""
    tf = sys.modules["tensorflow"]
    values = [tf.convert_to_tensor(v) for v in values]
    results = tf.numpy_function(lambda *arrays: call(_in_order(arrays)), values, [v.dtype for v in values])
    for result, value in zip(results, values, strict=True):
        result.set_shape(value.shape)
    return list(results)


def _in_jit(call: Call, values: list[Any]) -> list[Any]:
    """Adds a call to a program of jax.jit. It is ordered: all tasks make calls in the program's order."""
    import jax
    from jax.experimental import io_callback

    shapes = [jax.ShapeDtypeStruct(jax.numpy.shape(v), jax.numpy.result_type(v)) for v in values]
    return list(io_callback(lambda *arrays: call(_in_order(arrays)), shapes, *values, ordered=True))


def _in_order(arrays: tuple[Any, ...]) -> list[Any]:
    """Returns NumPy arrays in C's order."""
    import numpy as np

    return [np.asarray(a, order="C") for a in arrays]
