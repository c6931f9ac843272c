"""The manifest of a task: its code, arguments, packages, seeds and data, as a TaskManifest of manifest.proto.

A start waits for the first part of it, so nothing here imports a package or reads many files: versions are
taken from the names of the folders that pip writes. The agent removes secrets.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from tfcluster.channel import Channel

MAX_SOURCE = 64 << 10  # bytes of a file that is kept as text
MAX_SOURCES = 256 << 10  # bytes of all of them
MAX_FILE = 1 << 20  # bytes of a module that is hashed
MAX_FILES = 200  # modules that are hashed
MAX_REPR = 200  # characters of a value
MAX_ITEMS = 50  # of a collection that is shown by its repr

# Distributions that have another name than their module.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "absl": "absl-py",
    "cv2": "opencv-python",
    "google": "protobuf",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
_LIBRARIES = "nvidia-"  # prefix of the distributions of CUDA, cuDNN and NCCL
_IMPORT = re.compile(
    r"^[ \t]*(?:import[ \t]+(\w[\w., \t]*)|from[ \t]+(\w+)[\w.]*[ \t]+import\b)", re.MULTILINE | re.ASCII
)
_PACKAGES = ("site-packages", "dist-packages")
_HERE = os.path.dirname(os.path.abspath(__file__))
_PLAIN = (bool, int, float, str, bytes, type(None))
_UNSEEDED_TORCH = 67280421310721  # torch.initial_seed() before torch.manual_seed


class Manifest:
    """The manifest of this task. Errors are not raised: a manifest is not worth the run."""

    def __init__(self, channel: Channel, *, keeps_sources: bool) -> None:
        self._channel = channel
        self._keeps_sources = keeps_sources
        self._texts: dict[str, str] = {}  # of the program, by name
        self._code: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._arguments: dict[str, str] = {}
        self._modules_dir = ""
        self._sent: dict[str, Any] = {}

    def source(self, name: str, text: str) -> None:
        """Records the text of a script or a cell."""
        self._texts[name] = text

    def function(self, function: Callable[..., Any]) -> None:
        """Records a function, the notebook's functions that it calls, and the plain values that it uses."""
        with contextlib.suppress(Exception):
            from tfcluster.shipping import captured

            function = inspect.unwrap(function)
            used = captured(function)
            parts = [text for _, text in sorted(_definitions(used))]
            self._texts[function.__name__] = "\n\n".join([_source_of(function), *parts])
            self._values = {name: shown for name, value in used.items() if (shown := plain(value)) is not None}

    def arguments(self, value: Any) -> None:
        """Records the object given with --args."""
        with contextlib.suppress(Exception):
            named = value if isinstance(value, Mapping) else getattr(value, "__dict__", None)
            if named is None:
                self._arguments = {"": plain(value) or _kind(value)}
            else:
                self._arguments = {str(name): plain(item) or _kind(item) for name, item in list(named.items())}

    def modules(self, folder: str) -> None:
        """Records the modules that came with the program."""
        self._modules_dir = folder
        with contextlib.suppress(OSError):
            for path in _files_below(folder):
                self._add_file(os.path.relpath(path, folder), path)

    def start(self) -> None:
        """Sends the part that is known before the program is entered."""
        with contextlib.suppress(Exception):
            for name, text in self._texts.items():
                self._code[name] = _digest(text.encode("utf-8", "surrogatepass"))
            seed = os.environ.get("PYTHONHASHSEED")
            self._send({"seeds": {"PYTHONHASHSEED": seed} if seed else {}, **self._described()})

    def sources(self) -> None:
        """Sends the texts of the program and its modules. A start does not wait for them."""
        with contextlib.suppress(Exception):
            kept, size = {}, 0
            for name, text in self._texts.items() if self._keeps_sources else ():
                if len(text) <= MAX_SOURCE and size + len(text) <= MAX_SOURCES:
                    kept[name] = text
                    size += len(text)
            self._send({"sources": kept})

    def end(self) -> None:
        """Sends what the program has imported and set since the start."""
        with contextlib.suppress(Exception):
            self._send({"seeds": seeds(), **self._described()})
            self.sources()

    def _described(self) -> dict[str, Any]:
        folders = Folders(_warm)
        packages, absent = folders.packages({name for text in self._texts.values() for name in imported_by(text)})
        for name, path in folders.modules.items():
            if not (self._modules_dir and path.startswith(self._modules_dir + os.sep)):
                self._add_file(name, path)
        return {
            "python": sys.executable,
            "versions": versions(),
            "packages": packages,
            "absent": absent,
            "code": self._code,
            "values": self._values,
            "arguments": self._arguments,
        }

    def _add_file(self, name: str, path: str) -> None:
        """Adds the hash of a module, and its text."""
        if name in self._code or len(self._code) >= MAX_FILES:
            return
        with contextlib.suppress(OSError), open(path, "rb") as f:
            content = f.read(MAX_FILE + 1)
            if len(content) > MAX_FILE:
                return
            self._code[name] = _digest(content)
            if path.endswith(".py") and len(content) <= MAX_SOURCE:
                self._texts.setdefault(name, content.decode("utf-8", "replace"))

    def _send(self, part: dict[str, Any]) -> None:
        fresh = {name: value for name, value in part.items() if value and self._sent.get(name) != value}
        if fresh:
            self._sent.update(
                {name: value.copy() if isinstance(value, dict) else value for name, value in fresh.items()}
            )
            self._channel.send("manifest", manifest=fresh)


# ---------------------------------------------------------------- packages


class Folders:
    """The modules in the folders of sys.path, each listed once, and the imported packages.

    With another object, made before a fork, only later imports are looked at: a look at every module would
    copy the pages that the process shares with its parent.
    """

    def __init__(self, before: Folders | None = None) -> None:
        self._seen: dict[str, tuple[set[str], dict[str, str]]] = dict(before._seen) if before else {}
        self._found: dict[str, str] = dict(before._found) if before else {}  # versions of imported packages
        self._looked = before._looked if before else 0  # length of sys.modules at that time
        self.modules: dict[str, str] = {}  # the user's own, outside of packages: path by name

    def packages(self, named: Iterable[str]) -> tuple[dict[str, str], list[str]]:
        """Returns the versions of the imported and named packages, and the named ones that are absent."""
        absent = []
        found = self._found
        standard = sys.stdlib_module_names
        fresh = list(itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - self._looked)))
        self._looked = len(sys.modules)
        for name in {module.partition(".")[0] for module in fresh}:
            if name not in standard and not name.startswith("_") and name != "tfcluster":
                self._imported(name, sys.modules.get(name), found)
        for name in set(named):
            known = name in standard or name in sys.modules or name == "tfcluster"
            if not known and not self._installed(name, found):
                absent.append(name)
        for path in sys.path:
            for name, version in self._list(path)[1].items():
                if name.startswith(_LIBRARIES) or name == "protobuf":
                    found.setdefault(name, version)
        return found, sorted(absent)

    def _imported(self, name: str, module: ModuleType | None, found: dict[str, str]) -> None:
        path = getattr(module, "__file__", None) or ""
        if not path:
            return
        folder, file = os.path.split(path)
        if file.startswith("__init__."):
            folder = os.path.dirname(folder)
        version = self._version(name, folder) or getattr(module, "__version__", None)
        if isinstance(version, str) and version:
            found[_DISTRIBUTIONS.get(name, name)] = version
        elif path.endswith(".py"):
            self._ours(name, path)

    def _installed(self, name: str, found: dict[str, str]) -> bool:
        """Looks for a module that is not imported; reports whether it is there."""
        for folder in sys.path:
            modules, _ = self._list(folder)
            if name not in modules:
                continue
            if version := self._version(name, folder):
                found[_DISTRIBUTIONS.get(name, name)] = version
            else:
                self._ours(name, os.path.join(folder, name + ".py"))
            return True
        with contextlib.suppress(Exception):
            return importlib.util.find_spec(name) is not None
        return False

    def _ours(self, name: str, path: str) -> None:
        """Records a module of the user's own."""
        if not any(part in path.split(os.sep) for part in _PACKAGES) and not path.startswith(
            (sys.base_prefix + os.sep, sys.prefix + os.sep, _HERE)
        ):
            file = os.path.basename(path)
            self.modules[name + (".py" if file == name + ".py" else os.sep + file)] = path

    def _version(self, module: str, folder: str) -> str:
        return self._list(folder)[1].get(_normal(_DISTRIBUTIONS.get(module, module)), "")

    def _list(self, folder: str) -> tuple[set[str], dict[str, str]]:
        """Returns the modules and the versions of the distributions in a folder."""
        listed = self._seen.get(folder)
        if listed is not None:
            return listed
        modules: set[str] = set()
        versions: dict[str, str] = {}
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder or "."):
                if entry.endswith((".dist-info", ".egg-info")):
                    name, _, rest = entry.rpartition(".")[0].partition("-")
                    if version := rest.partition("-")[0]:
                        versions[_normal(name)] = version
                else:
                    name, dot, end = entry.partition(".")
                    if not dot or end in ("py", "pyc") or end.endswith("so"):
                        modules.add(name)
        self._seen[folder] = modules, versions
        return modules, versions


_warm: Folders | None = None  # of the process that forks tasks


def warm() -> None:
    """Looks at the imports of this process, before it forks tasks."""
    global _warm
    with contextlib.suppress(Exception):
        folders = Folders()
        folders.packages(())
        _warm = folders


def _normal(name: str) -> str:
    """Returns a distribution's name as in PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported_by(source: str) -> Iterator[str]:
    """Yields the top-level modules that a text's import statements name."""
    for match in _IMPORT.finditer(source):
        if match[2]:
            yield match[2]
        for part in (match[1] or "").split(","):
            if words := part.split():
                yield words[0].partition(".")[0]


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the libraries that imported frameworks were built with."""
    found = {"Python": ".".join(map(str, sys.version_info[:3])), "machine": os.uname().machine}
    with contextlib.suppress(Exception):
        build = getattr(sys.modules.get("tensorflow.python.platform.build_info"), "build_info", {})
        for name, key in (("CUDA (TensorFlow)", "cuda_version"), ("cuDNN (TensorFlow)", "cudnn_version")):
            if build.get(key):
                found[name] = str(build[key])
    with contextlib.suppress(Exception):
        if cuda := getattr(sys.modules.get("torch.version"), "cuda", None):
            found["CUDA (PyTorch)"] = str(cuda)
            found["NCCL (PyTorch)"] = ".".join(map(str, sys.modules["torch.cuda.nccl"].version()))
    return found


def seeds() -> dict[str, str]:
    """Returns the seeds that the program has set, as far as the imported frameworks reveal them."""
    found = {}
    for name, module, read in (
        ("keras", "keras.src.utils.rng_utils", lambda m: m.get_random_seed()),
        ("tensorflow", "tensorflow.python.eager.context", lambda m: m.global_seed()),
        ("torch", "torch.random", lambda m: None if m.initial_seed() == _UNSEEDED_TORCH else m.initial_seed()),
    ):
        with contextlib.suppress(Exception):
            if (loaded := sys.modules.get(module)) and (seed := read(loaded)) is not None:
                found[name] = str(seed)
    return found


# -------------------------------------------------------------------- code


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _source_of(value: Any) -> str:
    return inspect.getsource(value)


def _definitions(used: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields name and source of the notebook's functions and classes."""
    for name, value in used.items():
        if isinstance(value, FunctionType | type) and value.__module__ == "__main__":
            with contextlib.suppress(OSError, TypeError):
                yield name, _source_of(value)


def _files_below(folder: str) -> Iterator[str]:
    for at, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if not name.endswith(".pyc"):
                yield os.path.join(at, name)


# ------------------------------------------------------------------ values


def plain(value: Any) -> str | None:
    """Returns the repr of a plain value, shortened; None for others, because their repr may take long."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a scalar of NumPy
        value = value.item()
    if not _is_plain(value, 3):
        return None
    text = str(value) if isinstance(value, os.PathLike) else repr(value)
    return text if len(text) <= MAX_REPR else text[:MAX_REPR] + "…"


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, (str, bytes)) and len(value) > 1 << 16:
        return False
    if type(value) in _PLAIN or isinstance(value, os.PathLike):
        return True
    if depth == 0 or type(value) not in (list, tuple, dict, set, frozenset) or len(value) > MAX_ITEMS:
        return False
    items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return all(_is_plain(item, depth - 1) for item in items)


def _kind(value: Any) -> str:
    """Returns the type of a value, and its shape if it has one."""
    shape = getattr(value, "shape", None)
    text = f"<{type(value).__name__}{' ' + str(tuple(shape)) if isinstance(shape, tuple) else ''}>"
    return text[:MAX_REPR]
