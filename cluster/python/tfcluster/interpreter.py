"""The packages and the open GPU of this Python, for the zygote's description and its choice to fork."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import shlex
import sys
import time
import traceback
from typing import Any


def describe_bare() -> dict[str, Any]:
    """Describes this interpreter's packages without importing them."""
    described: dict[str, Any] = {
        "executable": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "zygote": False,
        "nccl": nccl_version(),
    }
    for name, distributions in {
        "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly"),
        "keras": ("keras",),
        "cloudpickle": ("cloudpickle",),
    }.items():
        for distribution in distributions:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                described[name] = importlib.metadata.version(distribution)
                break
    if "tensorflow" not in described:
        described["error"] = missing("tensorflow")
    return described


def describe_warm() -> dict[str, Any]:
    """Imports TensorFlow, Keras and cloudpickle and describes them."""
    described: dict[str, Any] = {
        "executable": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "zygote": True,
        "nccl": nccl_version(),
    }
    began = time.monotonic()
    for name in ("cloudpickle", "tensorflow", "keras"):
        try:
            module = importlib.import_module(name)
            described[name] = str(getattr(module, "__version__", ""))
        except BaseException as e:  # a broken build may raise anything, even SystemExit
            if isinstance(e, ModuleNotFoundError) and e.name == name:
                described.setdefault("error", missing(name))
                continue
            traceback.print_exc()
            described.setdefault("error", f"cannot import {name}: {one_line(e)}")
    described["import_seconds"] = time.monotonic() - began
    return described


def nccl_version() -> str:
    """Returns the version of NCCL's package, which TensorFlow and PyTorch use, or ""; opens no library."""
    for cuda in ("cu13", "cu12", "cu11"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(f"nvidia-nccl-{cuda}")
    return ""


def missing(package: str) -> str:
    """Returns the message about a package that is not installed."""
    name = {"tensorflow": "TensorFlow", "keras": "Keras"}.get(package, package)
    return f"{name} is not installed: {install_command()} {package}"


def install_command() -> str:
    """Returns the shell command to install packages here: uv's, if uv made this environment without pip."""
    executable = shlex.quote(sys.executable)
    with contextlib.suppress(OSError), open(os.path.join(sys.prefix, "pyvenv.cfg"), encoding="utf-8") as config:
        if any(line.startswith("uv = ") for line in config) and importlib.util.find_spec("pip") is None:
            return f"uv pip install --python {executable}"
    return f"{executable} -m pip install"


def one_line(error: BaseException) -> str:
    """Returns an exception as one line of at most 300 characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else text[:299] + "…"


def installed() -> tuple[Any, ...]:
    """Returns a fingerprint of the packages on disk: it is cheap, and any pip install changes it."""
    seen: list[Any] = []
    for folder in sys.path:
        if not folder.endswith(("site-packages", "dist-packages")):
            continue
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith((".dist-info", ".egg-info", ".pth", ".egg-link")):
                    seen.append((folder, entry.name, entry.stat().st_mtime_ns))
    return tuple(sorted(seen))


def nvidia_open() -> str:
    """Returns the path of a GPU device that this process has open, or "". Such a process must not fork."""
    with contextlib.suppress(OSError):
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/self/fd/{fd}")
                if target.startswith("/dev/nvidia"):
                    return target
    return ""
