"""ctx.local_copy for files that this executor can read."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import shutil
import stat
import tempfile
import urllib.parse
from collections.abc import Callable

_HIDDEN = (".", "_")  # prefixes of names that are not data: _SUCCESS, .crc


def local_copies(uri: str, share: tuple[int, int] | None, folder: str, host: str) -> list[str]:
    """Copies uri's files below folder, or only i, i+n, … of them if share is (i, n); returns the paths."""
    scheme, colon, _ = uri.partition(":")
    find = _SCHEMES.get(scheme if colon and not uri.startswith("/") else "")
    if find is None:
        raise NotImplementedError(
            f"ctx.local_copy cannot read {uri}: it reads paths, file: and hdfs: only. Read it with tf.io.gfile or "
            f"tf.data, or copy it to a disk of {host}"
        )
    files = find(uri, host)
    if share is not None:
        files = files[share[0] :: share[1]]
    return _copy_all(files, folder, uri, host)


def used(copies: list[str]) -> dict[str, object]:
    """Returns copies as DataUse of manifest.proto. A copy's folder depends on its file's path, size, time."""
    versions = hashlib.sha256("\0".join(os.path.basename(os.path.dirname(path)) for path in copies).encode())
    size = 0
    for path in copies:
        with contextlib.suppress(OSError):  # a program may have removed it
            size += os.path.getsize(path)
    return {"by": "local_copy", "files": len(copies), "bytes": size, "version": versions.hexdigest()[:12]}


def _find_local(uri: str, host: str) -> list[str]:
    """Returns the files of a path or pattern on this executor, sorted."""
    path = urllib.parse.unquote(urllib.parse.urlsplit(uri).path) if uri.startswith("file:") else uri
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        found = [os.path.join(at, name) for at, name in _below(path)]
        nothing = "is an empty folder"
    else:
        found = [name for name in glob.glob(path, recursive=True) if os.path.isfile(name)]
        nothing = "matches no file" if glob.has_magic(path) else "does not exist"
    if not found:
        raise FileNotFoundError(
            errno.ENOENT,
            f"ctx.local_copy: it {nothing} on {host}. Copy it to that host, or to a disk that every executor has",
            path,
        )
    return sorted(found)


def _below(folder: str) -> list[tuple[str, str]]:
    found = []
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        found += [
            (at, name) for name in names if not name.startswith(_HIDDEN) and os.path.isfile(os.path.join(at, name))
        ]
    return found


# The search for the files of a URI, by its scheme. The agent copies the files of hdfs:.
_SCHEMES: dict[str, Callable[[str, str], list[str]]] = {"": _find_local, "file": _find_local}


def _copy_all(files: list[str], folder: str, uri: str, host: str) -> list[str]:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    wanted = [(path, info := os.stat(path), _place(path, info, folder)) for path in files]
    lacking = sum(info.st_size for _, info, place in wanted if not os.path.exists(place))
    free = shutil.disk_usage(folder).free
    if lacking > free:
        raise OSError(
            errno.ENOSPC,
            f"not enough disk space on {host} for ctx.local_copy: {lacking} bytes needed, {free} free: free space "
            "there, or read the files in place",
            uri,
        )
    for path, _, place in wanted:
        if not os.path.exists(place):
            _copy(path, place)
    return [place for _, _, place in wanted]


def _place(path: str, info: os.stat_result, folder: str) -> str:
    """Returns the path for a copy of a file's version, in its own folder so that the file keeps its name."""
    version = f"{os.path.abspath(path)}\0{info.st_size}\0{info.st_mtime_ns}"
    key = hashlib.sha256(version.encode(errors="surrogateescape")).hexdigest()[:24]
    return os.path.join(folder, key, os.path.basename(path))


def _copy(path: str, place: str) -> None:
    """Copies a file to a temporary name, then renames the copy."""
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    fd, aside = tempfile.mkstemp(prefix=".part-", dir=os.path.dirname(place))
    try:
        with open(path, "rb") as source, os.fdopen(fd, "wb") as target:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                raise OSError(errno.EINVAL, "ctx.local_copy copies plain files only, and this is not one", path)
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(aside, place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
