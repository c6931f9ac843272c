"""The thread that reads the source of a feed: how it ends, and begins again."""

from __future__ import annotations

import threading
from typing import Any

from tfcluster.feed_data import Source
from tfcluster.feed_thread import Feeding

LONGEST = 10.0  # seconds


class Endless(Source):
    """A source whose first epoch ends at once, the second one when it is cancelled, and which is slow to end."""

    def __init__(self, again: bool) -> None:
        self.again = again
        self.reads = threading.Event()
        self.cancelled = threading.Event()
        self.may_end = threading.Event()

    def read(self, order: Any, epoch: int) -> int:
        if epoch == 0:
            return 7
        self.reads.set()
        assert self.cancelled.wait(LONGEST) and self.may_end.wait(LONGEST)
        raise OSError("the job was cancelled")

    def cancel(self) -> None:
        self.cancelled.set()


def heard(wait: Any) -> list[Any]:
    """The states that wait() reports; a state may be reported before anybody waits."""
    told: list[Any] = []
    wait(told.append)
    return told


def test_again() -> None:
    """The source is made anew, after the reading of the one before has been cancelled; ended waits for its end."""
    before = Feeding(Endless)
    source = before.source
    before.start({}, 3)
    assert source.reads.wait(LONGEST)
    whole = heard(lambda tell: before.wait(1, tell))  # of Go, which has given up waiting
    after = before.again()
    assert source.cancelled.is_set() and after.source is not source and after.source.again and not source.again
    ended = threading.Event()
    before.ended(lambda _: ended.set())
    assert not ended.wait(0.1) and not whole
    source.may_end.set()
    assert ended.wait(LONGEST)
    assert whole == [{"fed": [7], "ended": True, "stopped": "", "nan": {}}]  # that it was cancelled is no error
    assert not after.source.reads.is_set()
    after.start({}, 1)
    done = threading.Event()
    after.wait(1, lambda state: done.set())
    assert done.wait(LONGEST)


def test_again_before_the_beginning() -> None:
    """A feed that has not begun, or is complete, begins again without waiting."""
    before = Feeding(Endless)
    assert heard(before.again().ended) == [True] and heard(before.ended) == [True]
    done = threading.Event()
    before.start({}, 1)
    before.wait(1, lambda state: done.set())
    assert done.wait(LONGEST)
    before.again()
    ended = threading.Event()
    before.ended(lambda _: ended.set())
    assert ended.wait(LONGEST)


def test_no_epoch_behind_the_end() -> None:
    """A reading that is cancelled between two epochs does not begin the next one."""
    feeding = Feeding(Endless)
    feeding.source.read = lambda order, epoch: feeding.cancel() or epoch  # type: ignore[method-assign,func-returns-value]
    done = threading.Event()
    states: list[Any] = []
    feeding.start({}, 3)
    feeding.wait(9, lambda state: (states.append(state), done.set()))
    assert done.wait(LONGEST) and states[0]["fed"] == [0] and states[0]["ended"]


def test_place_of_an_error() -> None:
    """An error of the source names the innermost line of the notebook in which it occurred."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def batches():\n    yield 1\n    raise OSError('gone')", "/somewhere/program.py", "exec"), space)
    feeding = Feeding(Endless)
    feeding.source.read = lambda order, epoch: len(list(space["batches"]()))  # type: ignore[method-assign]
    done = threading.Event()
    states: list[Any] = []
    feeding.start({}, 1)
    feeding.wait(1, lambda state: (states.append(state), done.set()))
    assert done.wait(LONGEST)
    assert states[0]["error"] == "gone (program.py, line 3, in batches)"
