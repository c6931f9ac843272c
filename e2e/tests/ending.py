"""The end of a test session: SIGTERM ends it as Ctrl-C does, and what it leaves although it was killed is ended, too.

    python ending.py MARKER FOLDER

This program waits for the end of the pytest that started it, ends every process whose environment holds the marker, and
removes the folder.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

GRACE = 5.0  # seconds from SIGTERM to SIGKILL

_interrupted = False


def interrupted() -> bool:
    """Return whether the session ends early, by a signal."""
    return _interrupted


def _interrupt(number: int, frame: object) -> None:
    """Make pytest run the finalizers of all fixtures; a second signal does not interrupt them."""
    global _interrupted
    _interrupted = True
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for pid in children():  # of pytest-xdist: its workers, which it would interrupt only after five seconds
        with contextlib.suppress(OSError):
            if b"execnet" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGTERM)
    raise KeyboardInterrupt(signal.Signals(number).name)


def handle_signals() -> None:
    """End the session at SIGTERM and SIGINT."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)


def children() -> list[int]:
    """Return the processes that this one has started."""
    found: list[int] = []
    for path in pathlib.Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended, or a kernel that does not tell
            found += map(int, path.read_text().split())
    return found


def alive(pid: int) -> bool:
    """Return whether a process lives; a zombie does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def processes(marker: str) -> dict[int, str]:
    """Return every other living process whose environment holds the marker, with its command line."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if marker.encode() in (entry / "environ").read_bytes() and alive(int(entry.name)):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
    return found


def end(marker: str, grace: float = GRACE) -> None:
    """End every process with the marker: by SIGTERM, and those that are left after the grace by SIGKILL."""
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 60.0)):
        until = time.monotonic() + seconds
        told: set[int] = set()
        while (left := processes(marker)) and time.monotonic() < until:
            for pid in left.keys() - told:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            told |= left.keys()
            time.sleep(0.05)


@contextlib.contextmanager
def guarded(marker: str, folder: pathlib.Path):
    """Have this program look after what has the marker, and after the folder, also if pytest is killed."""
    command = [sys.executable, __file__, marker, str(folder)]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", start_new_session=True)
    try:
        yield
    finally:
        guard.stdin.close()
        guard.wait()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end(sys.argv[1])
    shutil.rmtree(sys.argv[2], ignore_errors=True)
