"""The parts of a program that are sent to tasks: the program, pickled, and the modules that it imports.

Only modules below the notebook's working directory, or beside a script without a notebook,
that the source imports by name are sent, and the files of spark-submit --py-files. They are
read from disk at each start.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import io
import linecache
import operator
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tfcluster.errors import UsageError
from tfcluster.interpreter import install_command

_SKIP = {"__pycache__", ".git", ".ipynb_checkpoints", "node_modules"}
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # so that equal modules give equal archives


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError:
        raise UsageError(f"cloudpickle is missing: {install_command()} cloudpickle; a script needs none") from None
    return cloudpickle


# ---------------------------------------------------------------- pickling


def pickle_value(value: Any, name: str) -> bytes:
    """Returns a pickled object; raises UsageError with the part that cannot be pickled."""
    try:
        return bytes(_cloudpickle().dumps(value))
    except UsageError:
        raise
    except Exception as e:
        raise UsageError(
            f"{name} cannot be sent to the tasks, because it cannot be pickled: {_one_line(e)}; make it in the program"
        ) from None


def pickle_program(function: Callable[..., Any], name: str, most: int, big: int) -> tuple[bytes, list[tuple[str, int]]]:
    """Returns the function, pickled with its code's source, and its captured values of at least big bytes.

    It pickles {"function": function, "sources": {file name: text}}, because tasks have no
    files with the cells' text, which tracebacks and AutoGraph need.
    """
    dumps = _cloudpickle().dumps
    try:
        pickled = _with_sources(function)
    except Exception as e:
        raise UsageError(_offender(function, name, e, dumps)) from None
    if len(pickled) > most:
        raise UsageError(
            f"{name} has {len(pickled) >> 20} MB with the notebook's objects it uses, "
            f"more than {most >> 20}: load data in the program instead"
        )
    if len(pickled) < big:
        return pickled, []
    sized = [(n, len(dumps(v))) for n, v in captured(function).items() if not isinstance(v, FunctionType | ModuleType)]
    return pickled, sorted(((n, s) for n, s in sized if s >= big), key=lambda item: -item[1])


def _with_sources(function: Callable[..., Any]) -> bytes:
    sources: dict[str, str] = {}

    class Pickler(_cloudpickle().Pickler):  # type: ignore[misc]
        """A pickler that collects each code object's source, and names cells as IPython's tracebacks do."""

        def reducer_override(self, value: Any) -> Any:
            if not isinstance(value, CodeType) or not value.co_filename:
                return super().reducer_override(value)
            name = cell_name(value.co_filename) or value.co_filename
            if name not in sources:
                linecache.checkcache(value.co_filename)
                if text := "".join(linecache.getlines(value.co_filename)):
                    sources[name] = text
            # From 3.1.3 on cloudpickle gives all code one file name: the task replaces it by the code's own.
            return operator.methodcaller("replace", co_filename=name), (value.replace(co_filename=""),)

    out = io.BytesIO()
    # In this order: the sources are complete once the function is pickled.
    Pickler(out).dump({"function": function, "sources": sources})
    return out.getvalue()


def cell_name(filename: str) -> str:
    """Returns "Cell In[7]" for the file name that IPython gives to that cell's code, and "" for any other."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    label = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(filename)
    return " ".join(label) if label and label[0] == "Cell" else ""


def _offender(function: Callable[..., Any], name: str, error: Exception, dumps: Callable[[Any], bytes]) -> str:
    """Returns the message about the object used by the function that cannot be pickled."""
    for used, value in captured(function).items():
        if isinstance(value, FunctionType):
            continue  # its own objects are checked separately
        try:
            dumps(value)
        except Exception as e:
            return (
                f"{name} cannot be sent to the tasks: it uses the notebook's {used}, "
                f"a {type(value).__name__} ({_one_line(e)}); make {used} inside {name}"
            )
    return f"{name} cannot be sent to the tasks: {_one_line(error)}"


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:300]


def captured(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns globals, closure values and defaults of a notebook's function and of functions it calls."""
    found: dict[str, Any] = {}
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, MethodType):
            item = item.__func__
        if isinstance(item, type) and item.__module__ == "__main__":
            waiting += [v for v in vars(item).values() if isinstance(v, FunctionType)]
            continue
        item = getattr(item, "__wrapped__", item)
        if not isinstance(item, FunctionType) or id(item) in seen or item.__module__ not in (None, "__main__"):
            continue
        seen.add(id(item))
        for name, value in _uses(item):
            if name not in found:
                found[name] = value
                waiting.append(value)
    return found


def _uses(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__ and not hasattr(builtins, name):
                yield name, function.__globals__[name]
    for name, held in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, held.cell_contents
        except ValueError:
            continue  # unbound
    for value in function.__defaults__ or ():
        yield function.__name__ + "'s default", value


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


# ----------------------------------------------------------------- modules


def modules_of_function(
    function: Callable[..., Any], root: str, py_files: Iterable[str] = (), beside: str = ""
) -> bytes:
    """Returns the zip for a function: modules imported by its code and its objects.

    beside is the folder of the script that runs, where Python finds modules first.
    """
    roots = [beside, root] if beside else [root]
    found = Collector([place for top in roots for place in (top, *_below(sys.path, top))], *roots)
    names: set[str] = set()
    # What a wrapper wraps is the user's, with imports in its body.
    for value in [function, inspect.unwrap(function), *captured(function).values()]:
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if not isinstance(name, str):
            name = type(value).__module__
        names.add(name)
        code = getattr(value, "__code__", None)
        if isinstance(code, CodeType):
            names.update(_imports_of_code(code))
            names.update(_submodules(value))
    for name in sorted(names - {"__main__"}):
        found.add(name)
    return found.zip(py_files)


def _submodules(function: FunctionType) -> Iterator[str]:
    """Yields modules that a function uses through a package: package.part.thing imports nothing by itself."""
    used = {name for code in _codes(function.__code__) for name in code.co_names}
    packages = [v.__name__ for _, v in _uses(function) if isinstance(v, ModuleType)]
    for name in list(sys.modules):
        for package in packages:
            if name.startswith(package + ".") and used.issuperset(name[len(package) + 1 :].split(".")):
                yield name


def _imports_of_code(code: CodeType) -> Iterator[str]:
    for inner in _codes(code):
        last = ""
        for step in dis.get_instructions(inner):
            if step.opname == "IMPORT_NAME":
                last = str(step.argval)
                yield last
            elif step.opname == "IMPORT_FROM":
                yield f"{last}.{step.argval}"


def modules_of_source(source: str, path: str, root: str, py_files: Iterable[str] = ()) -> bytes:
    """Returns the zip for a script (path) or a cell (source)."""
    places = [root, *_below(sys.path, root)]
    if path:
        folder = os.path.dirname(os.path.abspath(path))
        places.insert(0, folder)
        if os.path.commonpath([folder, os.path.abspath(root)]) != os.path.abspath(root):
            root = folder
        with open(path, encoding="utf-8", errors="replace") as f:
            source = f.read()
    found = Collector(places, root)
    found.scan(source, path or "cell", "")
    if path:
        found.leave_out(path)
    return found.zip(py_files)


def _below(paths: Iterable[str], root: str) -> list[str]:
    top = os.path.abspath(root) + os.sep
    return [p for p in paths if p and (os.path.abspath(p) + os.sep).startswith(top)]


class Collector:
    """A collector of modules below folders, by the names in a source's imports."""

    def __init__(self, places: Iterable[str], *roots: str) -> None:
        self._places = list(dict.fromkeys(os.path.abspath(p) for p in places))
        self._roots = tuple(os.path.join(os.path.abspath(root), "") for root in roots)
        self._files: dict[str, str] = {}  # name in the archive → path
        self._seen: set[str] = set()

    def leave_out(self, path: str) -> None:
        """Excludes the script itself."""
        real = os.path.abspath(path)
        self._files = {name: at for name, at in self._files.items() if at != real}

    def add(self, name: str) -> bool:
        """Adds a module, its packages and their imports; returns False if it is not below a root."""
        if not name or name.split(".")[0] == "tfcluster":
            return False
        if name in self._seen:
            return True
        return any(self._add_from(place, name) for place in self._places)

    def _add_from(self, place: str, name: str) -> bool:
        base = os.path.join(place, *name.split("."))
        for path in (base + ".py", os.path.join(base, "__init__.py")):
            if os.path.isfile(path) and self._ours(path):
                self._seen.add(name)
                self._above(place, name)
                self._take(place, path, name)
                return True
        return False

    def _above(self, place: str, name: str) -> None:
        parts = name.split(".")[:-1]
        for n in range(1, len(parts) + 1):
            path = os.path.join(place, *parts[:n], "__init__.py")
            package = ".".join(parts[:n])
            if package not in self._seen and os.path.isfile(path):
                self._seen.add(package)
                self._take(place, path, package)

    def _ours(self, path: str) -> bool:
        if not path.startswith(self._roots) or any(part in path for part in _INSTALLED):
            return False
        return not any(
            os.path.abspath(prefix).startswith(self._roots) and path.startswith(os.path.abspath(prefix) + os.sep)
            for prefix in {sys.prefix, sys.base_prefix}
        )

    def _take(self, place: str, path: str, name: str) -> None:
        self._files[os.path.relpath(path, place)] = path
        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
        with open(path, encoding="utf-8", errors="replace") as f:
            self.scan(f.read(), path, package)

    def scan(self, source: str, path: str, package: str) -> None:
        """Adds the modules that source imports. Syntax errors are left to the task."""
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.add(alias.name)
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(node, package)
                self.add(base)
                for alias in node.names:
                    self.add(f"{base}.{alias.name}" if base else alias.name)

    def zip(self, py_files: Iterable[str] = ()) -> bytes:
        """Returns the archive; empty if there is nothing to send."""
        members: dict[str, bytes] = {}
        for given in py_files:
            members.update(_py_file(given))
        for name, path in self._files.items():
            with open(path, "rb") as f:
                members[name] = f.read()
        if not members:
            return b""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(members):
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), members[name], zipfile.ZIP_DEFLATED)
        return out.getvalue()


def script_folder() -> str:
    """Returns the folder of the script that this Python runs; "" for python -m and an interactive one."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    return os.path.dirname(os.path.abspath(path)) if path and main.__spec__ is None else ""


def submitted_files() -> list[str]:
    """Returns the modules and archives of modules given to spark-submit --py-files, as Spark keeps them here."""
    pyspark: Any = sys.modules.get("pyspark")
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    if context is None:
        return []
    try:
        urls = context._conf.get("spark.submit.pyFiles", "").split(",")
        # Jars of --packages are among them.
        names = [url.rpartition("/")[2] for url in urls if url.endswith((".py", ".zip", ".egg"))]
        kept = [pyspark.SparkFiles.get(name) for name in names]
    except Exception:  # its JVM has ended
        return []
    return [path for path in kept if os.path.isfile(path)]


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _py_file(path: str) -> dict[str, bytes]:
    """Returns the members that --py-files PATH adds: a module, a package's folder, an archive."""
    if os.path.isdir(path):
        top = os.path.dirname(os.path.abspath(path)) if os.path.isfile(os.path.join(path, "__init__.py")) else path
        found = {}
        for folder, folders, files in os.walk(path):
            folders[:] = [f for f in folders if f not in _SKIP]
            for file in files:
                whole = os.path.join(folder, file)
                with open(whole, "rb") as f:
                    found[os.path.relpath(whole, top)] = f.read()
        return found
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return {i.filename: archive.read(i) for i in archive.infolist() if not i.is_dir()}
    with open(path, "rb") as f:
        return {os.path.basename(path): f.read()}
