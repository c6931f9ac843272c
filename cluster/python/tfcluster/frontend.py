"""The variables and the output of commands: IPython's if it runs, otherwise the program's and terminal's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_shell: Any = None  # IPython's, once the extension is loaded


def use(shell: Any) -> None:
    """Sets IPython's shell; None: there is none."""
    global _shell
    _shell = shell


def shell() -> Any:
    """Returns IPython's shell; None without the extension."""
    return _shell


def cell() -> int | None:
    """Returns the number of the running cell; None without the extension."""
    return None if _shell is None else int(_shell.execution_count)


def user_namespace() -> dict[str, Any]:
    """Returns the variables of the notebook, or of the main program."""
    return _shell.user_ns if _shell is not None else vars(sys.modules["__main__"])


class Screen:
    """The output of a command, shown in IPython if it runs, otherwise as text."""

    def __init__(self) -> None:
        self._ipython = _shell is not None
        self._pending: dict[str, str] = {}

    def stream(self, name: str, text: str) -> None:
        """Shows text."""
        to = sys.stderr if name == "stderr" else sys.stdout
        to.write(text)
        to.flush()

    def display(self, id: str, data: Mapping[str, Any], metadata: Mapping[str, Any], update: bool) -> None:
        """Shows a MIME bundle; with update replaces the bundle shown under id."""
        if self._ipython:
            from IPython.display import display

            display(dict(data), raw=True, metadata=dict(metadata), display_id=id, update=update)
            return
        text = str(data.get("text/plain", ""))
        if update:
            self._pending[id] = text
        else:
            sys.stdout.write(text)
            sys.stdout.flush()

    def close(self) -> None:
        """Ends the command: shows again text that could not be updated in place."""
        for text in self._pending.values():
            sys.stdout.write(text)
        self._pending.clear()
        sys.stdout.flush()


class Nowhere(Screen):
    """The output of a command of which only the value is wanted."""

    def stream(self, name: str, text: str) -> None:
        """Shows nothing."""

    def display(self, id: str, data: Mapping[str, Any], metadata: Mapping[str, Any], update: bool) -> None:
        """Shows nothing."""
