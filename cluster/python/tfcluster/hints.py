"""Advice that a task adds to an error of the program."""

from __future__ import annotations

import os


def missing_file(error: BaseException, notebook: str, started_in: str, host: str) -> str:
    """Return advice about a file that exists only in the notebook's folder; "" if that is not the cause.

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
