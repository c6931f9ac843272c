"""The presentation of an error of a task's program: the frames of its traceback, and a remedy."""

from __future__ import annotations

import os
from types import TracebackType

_HERE = os.path.dirname(os.path.abspath(__file__))


def missing_file(error: BaseException, notebook: str, started_in: str, host: str) -> str:
    """Returns advice about a file that exists only in the notebook's folder; "" if that is not the cause.

    notebook is that folder if the task does not start in it; started_in is the task's folder.
    """
    name = getattr(error, "filename", None)
    if not notebook or not isinstance(error, FileNotFoundError) or not isinstance(name, str):
        return ""
    given = name
    if os.path.isabs(name):
        below = [folder for folder in (notebook, started_in) if folder and name.startswith(folder + os.sep)]
        if not below:
            return ""
        given = os.path.relpath(name, below[0])
    return (
        f"on {host or 'this executor'} the task does not run in the notebook's folder: reserve with --files {given}, "
        "or start with --working-dir where all executors share a folder"
    )


def missing_module(error: BaseException | None) -> str:
    """Returns advice about a module that tfcluster can install; "" if that is not the cause."""
    if not isinstance(error, ModuleNotFoundError) or error.name != "tensorflowonspark":
        return ""
    return (
        "tfcluster has TensorFlowOnSpark's modules under this name, too: run tfcluster install --tensorflowonspark, "
        "with the options that installed this kernel, if there were any; or import them from tfcluster.tfos"
    )


_ON_PURPOSE = (RuntimeError, OSError, ValueError)  # this package raises them about its callers


def user_frames(error: BaseException) -> TracebackType | None:
    """Returns the traceback of an error without this package's frames, which would hide the program's lines.

    A traceback without other frames stays whole. So do the last frames if the error may be a fault of this
    package.
    """
    frames = []
    tb = error.__traceback__
    while tb is not None:
        frames.append((tb, os.path.dirname(os.path.abspath(tb.tb_frame.f_code.co_filename)) == _HERE))
        tb = tb.tb_next
    last = max((i for i, (_, ours) in enumerate(frames) if not ours), default=-1)
    for i, (frame, ours) in reversed(list(enumerate(frames))):
        if not ours or last < 0 or (i > last and not isinstance(error, _ON_PURPOSE)):
            frame.tb_next, tb = tb, frame
    return tb
