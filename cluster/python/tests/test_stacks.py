"""The task's side of stacks: what it answers, and that the program does not notice."""

from __future__ import annotations

import contextlib
import ctypes
import linecache
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Agent
from test_runner import finish, start
from test_stopping import until

from tfcluster import stacks

WAITS = """
import sys, threading, time

def innermost(event):
    print("ready", flush=True)
    event.wait(600)

def deep(n):
    return innermost(threading.Event()) if n == 0 else deep(n - 1)

threading.Thread(target=innermost, args=(threading.Event(),), name="helper", daemon=True).start()
deep({depth})
"""


Begin = Callable[[str], tuple[subprocess.Popen, Agent]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start a program, which ends with the test."""
    processes = []

    def begun(body: str) -> tuple[subprocess.Popen, Agent]:
        process, agent = start(tmp_path, body)
        processes.append((process, agent))
        return process, agent

    yield begun
    for process, agent in processes:
        process.kill()
        process.communicate()
        agent.close()


def ask(agent: Agent, question: int) -> dict:
    agent.write(op="stacks", question=question)
    return until(agent, "stacks")


def ask_until(agent: Agent, function: str) -> dict:
    """Ask until the main thread is in a function."""
    for question in range(1, 1000):
        answer = ask(agent, question)
        assert answer["question"] == question
        if any(frame[0] == function for frame in answer["threads"][0]["frames"]):
            return answer
        time.sleep(0.01)
    raise AssertionError(f"the main thread is never in {function}: {answer}")


def test_answer(begin: Begin) -> None:
    process, agent = begin(WAITS.replace("{depth}", "2"))
    ready = until(agent, "stacks_ready")
    assert ready["signal"] == signal.SIGRTMIN + 3 and ready["main"] and ready["thread_id"] != ready["main"]
    assert os.readlink(f"/proc/{process.pid}/fd/{ready['descriptor']}").startswith("/memfd:tfcluster-stacks")
    until(agent, "entered")  # only then
    answer = ask_until(agent, "innermost")
    assert answer["registered"] and answer["threads_left_out"] == 0
    main, *others = answer["threads"]
    assert main["main"] and main["name"] == "MainThread" and main["native_id"] == process.pid
    names = [frame[0] for frame in main["frames"]]
    at = names.index("innermost")
    assert names[at : at + 5] == ["innermost", "deep", "deep", "deep", "<module>"]
    assert main["frames"][at][3] == "event.wait(600)" and main["frames"][at][2] == 6
    assert [t["name"] for t in others if not t["name"].startswith("tfcluster-")] == ["helper"]
    assert all(t["native_id"] != ready["thread"] for t in others)  # not the one that answers


def test_limits(begin: Begin) -> None:
    _, agent = begin(WAITS.replace("{depth}", "500"))
    main = ask_until(agent, "innermost")["threads"][0]
    assert len(main["frames"]) == stacks.MAX_FRAMES and main["frames_left_out"] > 400


def test_faulthandler_writes_to_the_memory_file(begin: Begin) -> None:
    """Also while the GIL is held, and the system call that holds it goes on."""
    program = "import ctypes\nprint('ready', flush=True)\nctypes.PyDLL(None).sleep(600)\n"
    process, agent = begin(program)
    ready = until(agent, "stacks_ready")
    assert process.stdout.readline() == "ready\n"
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{process.pid}/fd/{ready['descriptor']}", "r+b", buffering=0) as file:
        for _ in range(3):
            file.truncate(0)
            assert libc.tgkill(process.pid, ready["thread"], ready["signal"]) == 0
            end = time.monotonic() + 60
            while f"{ready['main']:#018x}" not in (text := Path(file.name).read_text()) or "<module>" not in text:
                assert time.monotonic() < end, text
                time.sleep(0.01)
    assert process.poll() is None


OLD = """
import os, runpy, sys
del os.memfd_create
sys.argv[0] = "tfcluster.runner"
runpy.run_module("tfcluster.runner", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("glibc", ["new", "old"])
def test_python_without_memfd_create(tmp_path: Path, glibc: str) -> None:
    """Such a Python, for example uv's, asks the C library; where that is as old, there is no handler of the signal."""
    missing = "" if glibc == "new" else "import ctypes\nctypes.CDLL = lambda *_, **__: object()\n"
    process, agent = start(tmp_path, "print('ran')", ("-c", missing + OLD))
    ran = finish(process, agent)
    assert (ran.code, ran.stdout) == (0, "ran\n"), ran.stderr
    assert ("stacks_ready" in {m["op"] for m in ran.messages}) == (glibc == "new")


SIGNALS = """
import faulthandler, os, signal, sys, tempfile, time, multiprocessing
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append("USR1"))
os.kill(os.getpid(), signal.SIGUSR1)
with tempfile.TemporaryFile() as own:
    faulthandler.enable(own)
    faulthandler.register(signal.SIGUSR2, file=own, all_threads=True)
    os.kill(os.getpid(), signal.SIGUSR2)
    own.seek(0)
    assert b"most recent call first" in own.read()
pid = os.fork()
if pid == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
while seen != ["USR1"]:
    time.sleep(0.01)
print("fine", flush=True)
"""


def test_program_with_signals_of_its_own(begin: Begin) -> None:
    process, agent = begin(SIGNALS)
    stop = threading.Event()

    def asking() -> None:
        with contextlib.suppress(OSError, ValueError):  # the program has ended
            for question in range(100_000):
                if stop.is_set():
                    break
                ask(agent, question)

    asks = threading.Thread(target=asking)
    asks.start()
    try:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, "fine\n"), err
    finally:
        stop.set()
        asks.join()


def test_replaced_handler_is_reported(begin: Begin) -> None:
    program = "import signal, time\nsignal.signal(signal.SIGRTMIN + 3, lambda *_: None)\n" + WAITS.replace(
        "{depth}", "0"
    )
    _, agent = begin(program)
    assert not ask_until(agent, "innermost")["registered"]


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[str]:
    """A file that does not answer: nobody writes to it."""
    path = tmp_path / "slow.py"
    os.mkfifo(path)
    yield str(path)
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))  # ends a reader that has not ended


def test_sources(tmp_path: Path, fifo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are read once, of cells from linecache; a file that does not answer is not waited for."""
    file = tmp_path / "a.py"
    file.write_text("one\n    two  \nthree\n")
    linecache.cache["Cell In[3]"] = (5, None, ["x = 1\n", " y = 2\n"], "Cell In[3]")
    sources = stacks.Sources()

    def code(*places: tuple[str, int]) -> list[str]:
        frames = [["f", path, line, ""] for path, line in places]
        sources.add_code([{"frames": frames}])
        return [frame[3] for frame in frames]

    assert code(
        (str(file), 2), ("Cell In[3]", 2), ("<string>", 1), (str(file), 9), ("/no/such/file", 1), (fifo, 1)
    ) == [
        "two",
        "y = 2",
        "",
        "",
        "",
        "",
    ]
    file.write_text("changed\n" * 3)
    assert code((str(file), 2), (str(file), 3)) == ["two", "changed"]
    blocked = threading.Event()
    monkeypatch.setattr(os.path, "isfile", lambda path: path == str(file) or blocked.wait(60))
    began = time.monotonic()
    assert code(("/net/a.py", 1), (str(file), 3)) == ["", "changed"]
    assert code(("/net/b.py", 1), (str(file), 1)) == ["", ""]  # its reader still waits
    assert time.monotonic() - began < 30
    blocked.set()


def test_walk_names_methods() -> None:
    class Loader:
        def load(self) -> list:
            return stacks.walk(stacks.sys._getframe())[0]

    name = Loader().load()[0][0]
    assert re.fullmatch(r"(test_walk_names_methods\.<locals>\.Loader\.)?load", name)
