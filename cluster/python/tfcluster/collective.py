"""Collective calls of the chief and the workers: all_reduce, broadcast, all_gather, barrier.

    import tfcluster.collective as collective
    mean = collective.all_reduce(gradients, op="mean")

A call takes arrays of NumPy, and tensors of TensorFlow, PyTorch and JAX, also within tf.function and jax.jit.
Its result is of the same kind. A list is sent as one vector. Every task makes the same calls in the same
order; ranks are ctx.worker_num. Data travels through shared memory on one host, and by TCP with mutual TLS or
by RDMA between hosts. All ranks get the same bits. See package cluster/agent/group for the protocol.
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
"""Seconds in which every task must make a call, unless the call has another timeout."""

_LONGEST = 30 * 24 * 3600.0  # seconds
_lock = threading.Lock()
_group: Group | None = None


class _Operation:
    """The context of one collective operation, which has exclusive use of the group. Its time is recorded."""

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
    """Returns this task's part in its group, which the first call joins. Called with _lock held."""
    global _group
    if _group is None:
        import tfcluster

        _group = Group(*tfcluster.context().group(), timeout)
    return _group


def rank() -> int:
    """Returns this task's number: 0 is the chief, or worker 0 where there is no chief."""
    with _lock:
        return _joined(TIMEOUT).rank


def size() -> int:
    """Returns the number of tasks."""
    with _lock:
        return len(_joined(TIMEOUT).names)


def trains_with_others() -> bool:
    """Reports whether this task is a chief or worker and one of several.

    Without a run, and in tasks of other roles, it is not.
    """
    import tfcluster

    try:
        context = tfcluster.context()
    except RuntimeError:
        return False
    return context.job_name in ("chief", "worker") and size() > 1


def all_reduce(x: Any, op: str = "sum", timeout: float = TIMEOUT) -> Any:
    """Returns the sum of every task's x, element by element; with op="mean", "min" or "max" that instead.

    x is an array, or a list of arrays: then the result is a list. All tasks have the same shapes and types.
    The mean of integers is refused.
    """

    def combined(arrays: list[Any]) -> list[Any]:
        whole = [a.dtype.name for a in arrays if op == "mean" and a.dtype.kind in "biu"]
        if whole:
            raise ValueError(f'op="mean" of {whole[0]} would be rounded: use op="sum", or convert to a float type')
        until = _until(timeout)
        half = [op == "mean" and a.dtype.itemsize == 2 for a in arrays]  # a sum of halves may exceed any half
        sent = [a.astype("float32") if is_half else a for a, is_half in zip(arrays, half, strict=True)]
        with _operation:
            results = _by_type(sent, lambda same: _joined(timeout).all_reduce(same, op, until))
        return [r.astype(a.dtype, copy=False) for r, a in zip(results, arrays, strict=True)]

    return _mapped(x, combined)


def broadcast(x: Any, root: int = 0, timeout: float = TIMEOUT) -> Any:
    """Returns the x of task root, an array or a list of arrays. Another task's x gives its shape and type."""

    def sent(arrays: list[Any]) -> list[Any]:
        until = _until(timeout)
        with _operation:
            return _by_type(arrays, lambda same: _joined(timeout).broadcast(same, int(root), until))

    return _mapped(x, sent)


def all_gather(x: Any, timeout: float = TIMEOUT) -> Any:
    """Returns every task's x, one after the other along the first axis. All have one shape and type."""
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


# TensorFlow's AutoGraph does not convert functions with this attribute.
for _function in (all_reduce, broadcast, all_gather, barrier):
    _function.autograph_info__ = {}  # type: ignore[attr-defined]


def _until(timeout: float) -> float:
    """Returns the time by which every task must have made a call, on the monotonic clock."""
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
    """Makes one call for the arrays of each type, in the order of the types' first arrays."""
    results: list[Any] = [None] * len(arrays)
    for dtype in dict.fromkeys(a.dtype for a in arrays):
        places = [i for i, a in enumerate(arrays) if a.dtype == dtype]
        for i, result in zip(places, call([arrays[i] for i in places]), strict=True):
            results[i] = result
    return results
