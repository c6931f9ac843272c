"""Start the kernel of the environment that this file is installed in: python launch.py -f CONNECTION_FILE.

A wheel's files have no absolute paths, and a kernelspec needs them: Jupyter passes this file's path and runs it with
Jupyter's own Python, which may be that of another environment.
"""

import os
import shlex
import sys


def main() -> None:
    prefix = os.path.abspath(__file__)  # not where a link leads, such as into a cache of packages
    for _ in range(5):  # PREFIX/share/jupyter/kernels/tfcluster/launch.py
        prefix = os.path.dirname(prefix)
    program = os.path.join(prefix, "bin", "tfcluster")
    python = os.path.join(prefix, "bin", "python")
    environment = any(os.path.exists(os.path.join(prefix, sign)) for sign in ("pyvenv.cfg", "conda-meta"))
    if not environment or not os.access(python, os.X_OK):  # pip install --user, or the system's Python
        python = sys.executable
    try:
        os.execv(program, [program, "kernel", *sys.argv[1:], "--python", python])
    except OSError as e:
        sys.exit(
            f"tfcluster: {program} cannot be started ({e.strerror}). If this kernelspec was copied from another "
            "environment, run tfcluster install --user there; else install the wheel again: "
            f"{shlex.quote(python)} -m pip install --force-reinstall --no-deps WHEEL"
        )


main()
