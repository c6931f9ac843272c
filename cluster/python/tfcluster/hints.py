"""What a task adds to an error of the program's, so that a person knows what to do."""

from __future__ import annotations

import os


def missing_file(error: BaseException, notebook: str, started_in: str, host: str) -> str:
    """What is to be done about a file that is in the notebook's folder only; "" when that is not so.

    notebook is that folder where the task does not start in it, started_in where it does start.
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
