"""The path of the program tfcluster."""

from __future__ import annotations

import os
import sysconfig


def installed() -> str:
    """Returns the path of the program that was installed with this package; "" for none.

    `tfcluster install` writes its own path beside this file. pip puts a wheel's program into the folder for
    scripts that belongs to the folder for packages.
    """
    package = os.path.dirname(os.path.abspath(__file__))
    try:
        with open(os.path.join(package, "_program.txt"), encoding="utf-8") as f:
            program = f.read().strip()
    except OSError:
        return ""
    candidates = [program if os.path.isabs(program) else ""]
    home = os.path.realpath(os.path.dirname(package))
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        paths = sysconfig.get_paths(scheme)
        if home in (os.path.realpath(paths["purelib"]), os.path.realpath(paths["platlib"])):
            candidates.append(os.path.join(paths["scripts"], "tfcluster"))
    candidates.append(os.path.join(home, "bin", "tfcluster"))  # pip install --target
    return next((path for path in candidates if path and os.access(path, os.X_OK)), "")
