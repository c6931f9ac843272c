"""The child's side of the zygote's fork."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import json
import os
import random
import signal
import sys
import traceback
from typing import Any

from tfcluster import processes, runner

CONTROL_FD = 3
SPEC_FD = 4


def become_task(request: dict[str, Any], fds: list[int], why: str, parent: int, environment: dict[str, str]) -> None:
    """Runs the requested task in this fork of the zygote; never returns.

    why is the reason for a new interpreter, or ""; environment is the zygote's initial one.
    """
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        processes.control(processes.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
        argv = request.get("argv")
        spec = request.get("spec") or {}
        spec_fd = memory_file(json.dumps(spec)) if why and not argv else None
        arrange_descriptors(fds, spec_fd)
        enter_environment(request, environment, forks=not (why or argv))
        if argv:
            become_command(argv)
        if why:
            os.set_inheritable(CONTROL_FD, True)
            os.set_inheritable(SPEC_FD, True)
            runs = [sys.executable, "-P", "-m", "tfcluster.runner", str(CONTROL_FD), str(SPEC_FD)]
            os.execve(sys.executable, runs, dict(os.environ))
        random.seed()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed()
        gc.unfreeze()
        runner.run_and_exit(spec, CONTROL_FD)
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(1)


def memory_file(text: str) -> int:
    """Returns the descriptor of an anonymous file with text, at offset 0."""
    fd = processes.memory_file("tfcluster-spec")
    with os.fdopen(os.dup(fd), "wb") as f:
        f.write(text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def arrange_descriptors(fds: list[int], spec_fd: int | None) -> None:
    """Sets stdin to /dev/null, the given descriptors as 1, 2 and 3, spec_fd as 4; closes all others."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in (*fds, *([] if spec_fd is None else [spec_fd]))]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for target, fd in enumerate(high, start=1):
        os.dup2(fd, target, inheritable=target <= 2)
    os.closerange(1 + len(high), 1 << 20)


def enter_environment(request: dict[str, Any], started: dict[str, str], *, forks: bool) -> None:
    """Sets the task's environment and working directory.

    The variables are the agent's: another agent may have started this zygote, in its environment. Variables
    that imports have set are kept in a fork.
    """
    base: dict[str, str] = request.get("base") or started
    imported = {
        key: value
        for key, value in os.environ.items()
        if forks and started.get(key) != value and base.get(key) == started.get(key)
    }
    os.environ.clear()
    os.environ.update({**base, **imported})
    for key in request.get("unset") or ():
        os.environ.pop(key, None)
    os.environ.update(request.get("env") or {})
    os.environ[processes.MARKER] = str(request["id"])
    if cwd := request.get("cwd"):
        os.chdir(cwd)


def become_command(argv: list[str]) -> None:
    """Executes a command; if that fails, exits as a shell does."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as e:
        print(f"tfcluster: cannot run {argv[0]}: {os.strerror(e.errno or 0)}", file=sys.stderr, flush=True)
        os._exit(127 if e.errno == errno.ENOENT else 126)
