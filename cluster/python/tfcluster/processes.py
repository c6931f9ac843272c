"""The search for all processes of a task in /proc, so that none outlives it; system calls that os lacks."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os

PR_SET_PDEATHSIG = 1  # of prctl(2)
PR_SET_CHILD_SUBREAPER = 36
MFD_CLOEXEC = 1  # of memfd_create(2)
MARKER = "TFCLUSTER_TASK"  # environment variable that holds the task's id


def table() -> dict[int, tuple[int, int]]:
    """Returns every process that lives: pid → (parent, session).

    The state in /proc is the main thread's. If that thread has ended before others, the process still lives,
    and is the parent of the processes that it has started.
    """
    found: dict[int, tuple[int, int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{entry}/stat", "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
            threads = int(fields[17])
            if fields[0] != b"X" and (fields[0] != b"Z" or threads > 1):
                found[int(entry)] = (int(fields[1]), int(fields[3]))
    return found


def descendants(root: int, processes: dict[int, tuple[int, int]] | None = None) -> list[int]:
    """Returns the descendants of root, parents first."""
    processes = table() if processes is None else processes
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    unseen = list(children.get(root, ()))
    while unseen:
        pid = unseen.pop(0)
        found.append(pid)
        unseen.extend(children.get(pid, ()))
    return found


def in_session(root: int, session: int) -> list[int]:
    """Returns descendants of root in a session. A reused pid is not among them."""
    processes = table()
    return [pid for pid in descendants(root, processes) if processes[pid][1] == session]


def of_task(root: int, task: int, marker: str) -> list[int]:
    """Returns descendants of root that belong to a task: its own, its session's, and any with its marker."""
    processes = table()
    below = set(descendants(task, processes)) if processes.get(task, (0, 0))[0] == root else set()
    found = []
    for pid in descendants(root, processes):
        if pid in below or processes[pid][1] == task or carries(pid, marker):
            found.append(pid)
    return found


def carries(pid: int, marker: str) -> bool:
    """Reports whether the process was started with an environment entry."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as f:
        return marker.encode() in f.read().split(b"\0")
    return False


def kill(pid: int, number: int) -> None:
    """Signals a process that may have ended already."""
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def control(option: int, value: int) -> None:
    """Calls prctl(2) for this process."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


def memory_file(name: str) -> int:
    """Returns the descriptor of an empty file in memory, which a new program does not inherit.

    A Python that was built for glibc before 2.27, such as uv's, has no os.memfd_create; the host's glibc
    usually has memfd_create.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    create = getattr(ctypes.CDLL(None, use_errno=True), "memfd_create", None)
    if create is None:
        raise OSError(errno.ENOSYS, "memfd_create: this glibc is older than 2.27")
    if (fd := create(name.encode(), MFD_CLOEXEC)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"memfd_create: {os.strerror(number)}")
    return int(fd)
