"""The archive with the modules that a program imports from beside the notebook."""

from __future__ import annotations

import os
import shutil
import zipfile


def unpack(archive: str, folder: str) -> None:
    """Extracts a zip of modules into folder, completely or not at all; several tasks may do so at once."""
    if os.path.isdir(folder):
        return
    aside = f"{folder}.{os.getpid()}"
    with zipfile.ZipFile(archive) as z:
        z.extractall(aside)
    try:
        os.rename(aside, folder)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.isdir(folder):
            raise
