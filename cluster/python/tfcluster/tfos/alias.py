"""The import of tensorflowonspark in a task whose Python has no such package."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

PACKAGE = "tensorflowonspark"
_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")


class _Finder(MetaPathFinder):
    """A finder of the package in site; its modules are found in its folder, as those of any package."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Returns the package's spec, and None for all other names."""
        return PathFinder.find_spec(name, [_SITE]) if name == PACKAGE else None


def install() -> None:
    """Lets this process import tensorflowonspark from site where nothing else has it.

    The finder is the last one, so a real package comes first, wherever it is: the end of sys.path would come before
    the finders of editable installs, and would give child processes the folder.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
