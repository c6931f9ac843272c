"""Collective calls of the chief and the workers: all_reduce, broadcast, all_gather, barrier.

    import tfcluster.collective as collective
    mean = collective.all_reduce(gradients, op="mean")

Arrays are NumPy's; tensors of TensorFlow, PyTorch and JAX are taken and returned as they are, also within tf.function
and jax.jit. A list is sent as one vector. Every task makes the same calls in the same order; ranks are ctx.worker_num.
Data travels through shared memory on one host, and as mutual TLS between hosts; all ranks get the same bits. See
package cluster/groups/member for the protocol.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from tfcluster import collective_graph, collective_tensors
from tfcluster.activity import Activity
from tfcluster.collective_link import Group

TIMEOUT = 300.0
"""Seconds in which every task must make a call, if the call does not say otherwise."""

_LONGEST = 30 * 24 * 3600.0  # seconds
_lock = threading.Lock()
_group: Group | None = None


class _Operation:
    """Context of one collective operation: it has the group for itself, and its time is recorded."""

    _began = 0.0

    def __enter__(self) -> None:
        _lock.acquire()
        self._began = _activity().operation_begins()

    def __exit__(self, *_: object) -> None:
        _activity().operation_ended(self._began)
        _lock.release()


_operation = _Operation()


def _activity() -> Activity:
    import tfcluster

    return tfcluster.context().activity


def _joined(timeout: float) -> Group:
    """This task's part in its group, which the first call joins. With _lock held."""
    global _group
    if _group is None:
        import tfcluster

        _group = Group(*tfcluster.context().group(), timeout)
    return _group


def rank() -> int:
    """The number of this task: 0 is the chief, or worker 0."""
    with _lock:
        return _joined(TIMEOUT).rank


def size() -> int:
    """The number of tasks."""
    with _lock:
        return len(_joined(TIMEOUT).names)


def trains_with_others() -> bool:
    """Whether this is a chief or worker of several. Without a run, and in other tasks, there are no others."""
    import tfcluster

    try:
        context = tfcluster.context()
    except RuntimeError:
        return False
    return context.job_name in ("chief", "worker") and size() > 1


def all_reduce(x: Any, op: str = "sum", timeout: float = TIMEOUT) -> Any:
    """The sum of every task's x, element by element; or "mean", "min", "max".

    x is an array, or a list of arrays: then the result is a list. All tasks have the same shapes and types. The mean
    of integers is refused.
    """

    def combined(arrays: list[Any]) -> list[Any]:
        whole = [a.dtype.name for a in arrays if op == "mean" and a.dtype.kind in "biu"]
        if whole:
            raise ValueError(f'op="mean" of {whole[0]} would be rounded: use op="sum", or convert to a float type')
        until = _until(timeout)
        half = [op == "mean" and a.dtype.itemsize == 2 for a in arrays]  # the sum of halves may be larger than any half
        sent = [a.astype("float32") if is_half else a for a, is_half in zip(arrays, half, strict=True)]
        with _operation:
            results = _by_type(sent, lambda same: _joined(timeout).all_reduce(same, op, until))
        return [r.astype(a.dtype, copy=False) for r, a in zip(results, arrays, strict=True)]

    return _mapped(x, combined)


def broadcast(x: Any, root: int = 0, timeout: float = TIMEOUT) -> Any:
    """The x of task root; that of the others says its shape and type. x is an array or a list of arrays."""

    def sent(arrays: list[Any]) -> list[Any]:
        until = _until(timeout)
        with _operation:
            return _by_type(arrays, lambda same: _joined(timeout).broadcast(same, int(root), until))

    return _mapped(x, sent)


def all_gather(x: Any, timeout: float = TIMEOUT) -> Any:
    """Every task's x, one behind the other along the first axis. All have one shape and type."""
    until = _until(timeout)
    collective_graph.finish()
    array, back = collective_tensors.taken(x)
    with _operation:
        return back(_joined(timeout).all_gather(array, until))


def barrier(timeout: float = TIMEOUT) -> None:
    """Waits until every task has called it."""
    until = _until(timeout)
    collective_graph.finish()
    with _operation:
        _joined(timeout).barrier(until)


# TensorFlow's AutoGraph leaves functions with this attribute as they are.
for _function in (all_reduce, broadcast, all_gather, barrier):
    _function.autograph_info__ = {}  # type: ignore[attr-defined]


def _until(timeout: float) -> float:
    """The time at which a call must have been made, on the monotonic clock."""
    seconds = float(timeout)
    if not 0 < seconds < math.inf:
        raise ValueError(f"timeout is {timeout}: give a number of seconds above 0")
    return time.monotonic() + min(seconds, _LONGEST)


def _mapped(x: Any, call: Callable[[list[Any]], list[Any]]) -> Any:
    """Maps an array or tensor, or a list of them, by a call that maps arrays to arrays of the same shapes."""
    several = isinstance(x, list | tuple)
    values = list(x) if several else [x]
    if (in_graph := collective_graph.of(values)) is not None:
        results = in_graph(call, values)
    else:
        collective_graph.finish()
        taken = [collective_tensors.taken(value) for value in values]
        arrays = call([array for array, _ in taken])
        results = [back(array) for (_, back), array in zip(taken, arrays, strict=True)]
    return results if several else results[0]


def _by_type(arrays: list[Any], call: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Makes a call for the arrays of each type; types are taken in the order in which they first appear."""
    results: list[Any] = [None] * len(arrays)
    for dtype in dict.fromkeys(a.dtype for a in arrays):
        places = [i for i, a in enumerate(arrays) if a.dtype == dtype]
        for i, result in zip(places, call([arrays[i] for i in places]), strict=True):
            results[i] = result
    return results
