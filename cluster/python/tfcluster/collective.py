"""Collective calls of the chief and the workers: all_reduce, broadcast, all_gather, barrier.

    import tfcluster.collective as collective
    mean = collective.all_reduce(gradients) / collective.size()

Arrays are NumPy's; tensors of TensorFlow, PyTorch and JAX are taken and returned as they are. Every task makes the
same calls in the same order; ranks are ctx.worker_num. Data travels through shared memory on one host, and as mutual
TLS between hosts; all ranks get the same bits. See package cluster/groups/member for the protocol.
"""

from __future__ import annotations

import threading
from typing import Any

from tfcluster import collective_tensors
from tfcluster.collective_link import Group

TIMEOUT = 300.0
"""Seconds in which every task must make a call, if the call does not say otherwise."""

_lock = threading.Lock()
_group: Group | None = None


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


def all_reduce(x: Any, op: str = "sum", timeout: float = TIMEOUT) -> Any:
    """The sum of every task's x, element by element; or "min", "max". All have one shape and type."""
    array, back = collective_tensors.taken(x)
    with _lock:
        return back(_joined(timeout).all_reduce(array, op, timeout))


def broadcast(x: Any, root: int = 0, timeout: float = TIMEOUT) -> Any:
    """The x of task root; that of the others says its shape and type."""
    array, back = collective_tensors.taken(x)
    with _lock:
        return back(_joined(timeout).broadcast(array, root, timeout))


def all_gather(x: Any, timeout: float = TIMEOUT) -> Any:
    """Every task's x, one behind the other along the first axis. All have one shape and type."""
    array, back = collective_tensors.taken(x)
    with _lock:
        return back(_joined(timeout).all_gather(array, timeout))


def barrier(timeout: float = TIMEOUT) -> None:
    """Waits until every task has called it."""
    with _lock:
        _joined(timeout).barrier(timeout)
