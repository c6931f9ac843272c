"""Start the kernel of the environment that this file is installed in: python launch.py -f CONNECTION_FILE.

A wheel's files have no absolute paths, and a kernelspec needs them: Jupyter passes this file's path and runs it with
Jupyter's own Python, which may be that of another environment.
"""

import os
import shlex
import sys


def interpreter(prefix: str) -> str:
    """The Python that pip installed this file for; Jupyter's own if that is not found."""
    python = os.path.join(prefix, "bin", "python")
    environment = any(os.path.exists(os.path.join(prefix, sign)) for sign in ("pyvenv.cfg", "conda-meta"))
    if environment and os.access(python, os.X_OK):
        return python
    # pip install --user, or the system's Python: the folder of the packages has its version.
    names = with_package(prefix)
    if sys.prefix == sys.base_prefix and f"python3.{sys.version_info.minor}" in names:
        return sys.executable
    folders = [os.path.join(p, "bin") for p in (prefix, sys.base_prefix)] + os.get_exec_path()
    for name in names:
        for folder in folders:
            path = os.path.join(folder, name)
            # An environment, such as Jupyter's, does not have what is installed here.
            if os.access(path, os.X_OK) and not os.path.exists(os.path.join(os.path.dirname(folder), "pyvenv.cfg")):
                return path
    return sys.executable


def with_package(prefix: str) -> list[str]:
    """The names of the Pythons that have the package tfcluster below prefix, such as python3.11, the newest first."""
    names = set()
    for lib in (os.path.join(prefix, "lib"), os.path.join(prefix, "lib64")):
        for name in os.listdir(lib) if os.path.isdir(lib) else ():
            for packages in ("site-packages", "dist-packages"):
                if name.startswith("python3.") and os.path.isdir(os.path.join(lib, name, packages, "tfcluster")):
                    names.add(name)
    return sorted(names, key=lambda name: (len(name), name), reverse=True)


def main() -> None:
    prefix = os.path.abspath(__file__)  # not where a link leads, such as into a cache of packages
    for _ in range(5):  # PREFIX/share/jupyter/kernels/tfcluster/launch.py
        prefix = os.path.dirname(prefix)
    program = os.path.join(prefix, "bin", "tfcluster")
    python = interpreter(prefix)
    try:
        os.execv(program, [program, "kernel", *sys.argv[1:], "--python", python])
    except OSError as e:
        sys.exit(
            f"tfcluster: {program} cannot be started ({e.strerror}). If this kernelspec was copied from another "
            "environment, run tfcluster install --user there; else install the wheel again: "
            f"{installer(python)} --force-reinstall --no-deps WHEEL"
        )


def installer(python: str) -> str:
    """The command that installs packages for a Python: uv's, if uv made its environment without pip."""
    prefix = os.path.dirname(os.path.dirname(python))
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8") as config:
            uv = any(line.startswith("uv = ") for line in config)
        lib = os.path.join(prefix, "lib")
        if uv and not any(os.path.isdir(os.path.join(lib, n, "site-packages", "pip")) for n in os.listdir(lib)):
            return f"uv pip install --python {shlex.quote(python)}"
    except OSError:
        pass
    return f"{shlex.quote(python)} -m pip install"


main()
