"""Exceptions that a notebook's cell shows in a few lines, without a traceback of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class _Told:
    """An exception that IPython shows by lines of its own instead of a traceback."""

    report: Sequence[str] = ()

    def _render_traceback_(self) -> list[str]:
        return list(self.report) or [f"{type(self).__name__}: {self}"]


class UsageError(_Told, ValueError):
    """An invalid line or call."""


class ClusterError(_Told, RuntimeError):
    """A cluster cannot do what was requested; the message has a remedy."""


class RunFailed(ClusterError):
    """The failure of a run or a reservation.

    task, host  of the task that failed first, "worker:1"
    exit_code   its exit code; 128 + n for signal n
    signal      the signal that ended it, or 0
    lines       its last stderr lines
    """

    def __init__(
        self,
        message: str = "the run failed",
        task: str = "",
        host: str = "",
        exit_code: int = 0,
        signal: int = 0,
        lines: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.task = task
        self.host = host
        self.exit_code = exit_code
        self.signal = signal
        self.lines = list(lines)


def raised(said: Mapping[str, Any]) -> BaseException:
    """Returns the exception for an error that Go reports."""
    text = str(said.get("evalue") or "")
    error: BaseException
    match said.get("ename"):
        case "RunFailed":
            error = RunFailed(
                text,
                task=str(said.get("task") or ""),
                host=str(said.get("host") or ""),
                exit_code=int(said.get("exit_code") or 0),
                signal=int(said.get("signal") or 0),
                lines=said.get("tail") or (),
            )
        case "UsageError":
            error = UsageError(text)
        case "KeyboardInterrupt":
            error = KeyboardInterrupt(text)
        case _:
            error = ClusterError(text)
    lines = list(said.get("lines") or [])
    if isinstance(error, _Told):
        error.report = lines
    elif lines:
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
    return error
