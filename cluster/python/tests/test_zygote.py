"""What the zygote decides, without one running: the agent's tests in Go run it."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfcluster import forked, interpreter, processes, zygote


def made(tmp_path: Path, *, warm: bool) -> zygote.Zygote:
    path = str(tmp_path / "z.sock")
    return zygote.Zygote(zygote.listen(path), path, {}, warm=warm)


def test_the_socket_is_this_users_alone(tmp_path: Path) -> None:
    z = made(tmp_path, warm=False)
    assert os.stat(tmp_path / "z.sock").st_mode & 0o777 == 0o600
    z.retire()
    z.retire()
    assert not (tmp_path / "z.sock").exists()


def test_a_fork_only_while_it_is_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    (site / "a-1.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(site)])
    z = made(tmp_path, warm=True)
    assert z.why_fresh({}) == ""
    assert z.why_fresh({"fresh": True}) == "asked"
    monkeypatch.setattr(zygote, "nvidia_open", lambda: "/dev/nvidia0")
    assert "holds /dev/nvidia0" in z.why_fresh({})
    monkeypatch.undo()
    monkeypatch.setattr(sys, "path", [str(site)])
    (site / "b-1.dist-info").mkdir()
    assert "packages on disk changed" in z.why_fresh({})
    z.retire()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_right_after_the_fork_is_not_lost(tmp_path: Path, number: int) -> None:
    z = made(tmp_path, warm=False)
    ours, theirs = socket.socketpair()
    connection = zygote.Connection(ours)
    forked_now = subprocess.Popen(["sleep", "60"])  # in no session of its own yet
    try:
        z._children[forked_now.pid] = (connection, "x")
        connection.pids["x"] = forked_now.pid
        z._kill(connection, "x", number)
        assert forked_now.wait(30) == -number
    finally:
        forked_now.kill()
        forked_now.wait()
        z.retire()
        connection.close()
        theirs.close()


def test_a_number_used_again_is_another_tasks(tmp_path: Path) -> None:
    z = made(tmp_path, warm=False)
    ours, theirs = socket.socketpair()
    connection = zygote.Connection(ours)
    another = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        z._children[another.pid] = (connection, "new")
        connection.pids.update({"old": another.pid, "new": another.pid})
        z._kill(connection, "old", signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            another.wait(0.2)
        assert connection.pids == {"new": another.pid}
    finally:
        another.kill()
        another.wait()
        z.retire()
        connection.close()
        theirs.close()


def test_bare_is_always_fresh(tmp_path: Path) -> None:
    z = made(tmp_path, warm=False)
    assert z.why_fresh({}) == "asked"
    z.retire()


def test_describing_imports_nothing() -> None:
    said = interpreter.describe_bare()
    assert said["version"] == ".".join(map(str, sys.version_info[:3])) and not said["zygote"]
    assert ("error" in said) == ("tensorflow" not in said)


def test_the_version_of_nccl_is_that_of_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter.nccl_version() == interpreter.describe_bare()["nccl"]
    package = tmp_path / "nvidia_nccl_cu12-2.21.5.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-nccl-cu12\nVersion: 2.21.5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert interpreter.describe_bare()["nccl"] == "2.21.5"


def test_one_line() -> None:
    assert f"{interpreter.install_command()} tensorflow" in interpreter.missing("tensorflow")
    assert interpreter.one_line(ValueError("a\n b")) == "ValueError: a b"
    assert len(interpreter.one_line(ValueError("x" * 1000))) == 300


def test_the_zygote_imports_no_user_code() -> None:
    code = "import sys, tfcluster.zygote; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    out = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    for name in ("numpy", "pyarrow", "grpc", "tensorflow", "keras", "IPython"):
        assert f"'{name}'" not in out


def test_a_tasks_processes_are_found() -> None:
    env = {**os.environ, processes.MARKER: "demo/run1"}
    marked = subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)
    other = subprocess.Popen(["sleep", "60"])
    try:
        until = time.monotonic() + 30
        while not processes.carries(marked.pid, f"{processes.MARKER}=demo/run1") and time.monotonic() < until:
            time.sleep(0.01)
        found = processes.of_task(os.getpid(), 1 << 30, f"{processes.MARKER}=demo/run1")
        assert found == [marked.pid]
        assert processes.in_session(os.getpid(), marked.pid) == [marked.pid]
        assert {marked.pid, other.pid} <= set(processes.descendants(os.getpid()))
    finally:
        for p in (marked, other):
            processes.kill(p.pid, signal.SIGKILL)
            p.wait()


HEADLESS = """
import ctypes, subprocess, sys, threading, time
print(subprocess.Popen(["sleep", "60"], start_new_session=True, env={}).pid, flush=True)
threading.Thread(target=time.sleep, args=[60]).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_without_its_main_thread_lives() -> None:
    """Its state is Z; what it has started is found by way of it."""
    task = subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE, text=True)
    child = int(task.stdout.readline())  # type: ignore[union-attr]
    try:
        until = time.monotonic() + 30
        while not state_of(task.pid).startswith("Z") and time.monotonic() < until:
            time.sleep(0.01)
        assert processes.of_task(os.getpid(), task.pid, "=") == [child]
        processes.kill(task.pid, signal.SIGKILL)
        while task.pid in processes.table() and time.monotonic() < until:
            time.sleep(0.01)
        assert state_of(task.pid).startswith("Z") and task.pid not in processes.table()
    finally:
        for pid in (child, task.pid):
            processes.kill(pid, signal.SIGKILL)
        task.wait()


def state_of(pid: int) -> str:
    """The fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]


def test_memory_file() -> None:
    with os.fdopen(forked.memory_file("ü"), encoding="utf-8") as f:
        assert f.read() == "ü"


def test_a_task_has_its_agents_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    started = {"WHOSE": "A", "SECRET_OF_A": "1", "PATH": "/a"}
    now = {**started, "SET_BY_AN_IMPORT": "1", "PATH": "/a:/import"}
    request = {"id": "x", "base": {"WHOSE": "B", "PATH": "/a"}, "env": {"ASKED": "1"}, "unset": ["GONE"]}
    for forks, more in ((True, {"SET_BY_AN_IMPORT": "1", "PATH": "/a:/import"}), (False, {"PATH": "/a"})):
        monkeypatch.setattr(os, "environ", dict(now))
        forked.enter_environment(request, started, forks=forks)
        assert os.environ == {"WHOSE": "B", "ASKED": "1", processes.MARKER: "x", **more}
