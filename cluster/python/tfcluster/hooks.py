"""Functions to call after the import of a module, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Hook = Callable[[ModuleType], None]


def when_imported(name: str, hook: Hook) -> None:
    """Calls hook with module `name`: now if it is imported, otherwise after its import."""
    module = sys.modules.get(name)
    if module is not None:
        _call(hook, module)
        return
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            finder.hooks.setdefault(name, []).append(hook)
            return
    finder = _Finder()
    finder.hooks[name] = [hook]
    sys.meta_path.insert(0, finder)


def _call(hook: Hook, module: ModuleType) -> None:
    """Calls a hook. Its errors are printed; the program continues without it."""
    try:
        hook(module)
    except Exception:
        print(f"tfcluster: cannot adapt {module.__name__}; it stays as it is:", file=sys.stderr)
        traceback.print_exc()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.hooks: dict[str, list[Hook]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        hooks = self.hooks.pop(name, None)
        if hooks is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Loader(spec.loader, hooks)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: Any, hooks: list[Hook]) -> None:
        self._inner = inner
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:  # get_source, is_package, … of the inner loader
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        for hook in self._hooks:
            _call(hook, module)
