"""Where the names of a program are, and where a command shows what it does: IPython if it runs, else the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_shell: Any = None  # IPython's, once the extension is loaded


def use(shell: Any) -> None:
    """Sets IPython's shell; None: there is none any more."""
    global _shell
    _shell = shell


def shell() -> Any:
    """IPython's shell, None without the extension."""
    return _shell


def cell() -> int | None:
    """The number of the cell at work, None without the extension."""
    return None if _shell is None else int(_shell.execution_count)


def user_namespace() -> dict[str, Any]:
    """The names of the notebook, or of the program that was started."""
    return _shell.user_ns if _shell is not None else vars(sys.modules["__main__"])


class Screen:
    """Shows what a command emits: through IPython where it runs, else as text."""

    def __init__(self) -> None:
        self._ipython = _shell is not None
        self._pending: dict[str, str] = {}

    def stream(self, name: str, text: str) -> None:
        """Text of the command's."""
        to = sys.stderr if name == "stderr" else sys.stdout
        to.write(text)
        to.flush()

    def display(self, id: str, data: Mapping[str, Any], metadata: Mapping[str, Any], update: bool) -> None:
        """A MIME bundle, or a new one in place of what was shown under id."""
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
        """The command is over: text that could not be updated in place is written once more."""
        for text in self._pending.values():
            sys.stdout.write(text)
        self._pending.clear()
        sys.stdout.flush()
