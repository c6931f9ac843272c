"""A notebook's kernel as a front end sees it: the real binary, installed into a prefix of its own."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 300.0  # seconds, of every wait: a test that reaches it has failed


def wait_for(what: str, holds: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Poll until the condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def processes(marker: str) -> dict[int, str]:
    """Every living process whose environment holds the marker, with its command line."""
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


class Cell:
    """What came of a cell."""

    def __init__(self) -> None:
        self.text = ""
        self.stderr = ""
        self.streams: list[tuple[str, str]] = []
        self.plain: list[str] = []
        self.result = ""
        self.error = ""
        self.ename = ""
        self.status = ""
        self.count = 0

    def take(self, message: dict[str, Any]) -> None:
        """Gather one message of IOPub."""
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self.text += content["text"]
            self.streams.append((content["name"], content["text"]))
            if content["name"] == "stderr":
                self.stderr += content["text"]
        elif kind in ("display_data", "update_display_data"):
            self.plain.append(content["data"].get("text/plain", ""))
        elif kind == "execute_result":
            self.result = content["data"]["text/plain"]
        elif kind == "error":
            self.ename, self.error = content["ename"], "\n".join(content["traceback"])

    @property
    def all(self) -> str:
        """Everything a reader sees."""
        return "\n".join([self.text, *self.plain, self.result, self.error])


class Notebook:
    """One kernel and its client."""

    def __init__(self, prefix: pathlib.Path, env: dict[str, str], cwd: pathlib.Path, name: str = "tfcluster") -> None:
        specs = KernelSpecManager(kernel_dirs=[str(prefix / "share" / "jupyter" / "kernels")])
        self.manager = KernelManager(kernel_name=name, kernel_spec_manager=specs)
        self.env, self.cwd = env, cwd
        self.replies: dict[str, dict[str, Any]] = {}  # of cells that run beside the one looked at
        self.manager.start_kernel(env=env, cwd=str(cwd))
        self.connect()

    def connect(self) -> None:
        """Open the client's channels."""
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE)

    @property
    def pid(self) -> int:
        """The kernel's process."""
        return self.manager.provisioner.pid

    def send(self, code: str, **kw: Any) -> str:
        """Send a cell without waiting."""
        return self.client.execute(code, **kw)

    def finish(self, request: str, timeout: float = DEADLINE) -> Cell:
        """Gather what comes of a cell until it is idle and answered."""
        cell, end, idle, reply = Cell(), time.monotonic() + timeout, False, self.replies.pop(request, None)
        while not (idle and reply):
            if time.monotonic() > end:
                raise AssertionError(f"the cell does not end; so far:\n{cell.all}")
            for channel, wait in (("iopub", 0.05), ("shell", 0.01)):
                try:
                    message = getattr(self.client, f"get_{channel}_msg")(timeout=wait)
                except Exception:  # noqa: S112  an empty queue
                    continue
                parent = message["parent_header"].get("msg_id", "")
                if parent != request:
                    if channel == "shell":
                        self.replies[parent] = message["content"]
                    continue
                if channel == "shell":
                    reply = message["content"]
                elif message["msg_type"] == "status":
                    idle = idle or message["content"]["execution_state"] == "idle"
                else:
                    cell.take(message)
        cell.status, cell.count = reply["status"], reply.get("execution_count", 0)
        return cell

    def finish_reply(self, request: str, timeout: float = DEADLINE) -> dict[str, Any]:
        """Wait for a cell's reply alone: what it showed went by while other cells ran."""
        end = time.monotonic() + timeout
        while request not in self.replies:
            if time.monotonic() > end:
                raise AssertionError("the cell does not end")
            try:
                message = self.client.get_shell_msg(timeout=0.1)
            except Exception:  # noqa: S112  an empty queue
                continue
            self.replies[message["parent_header"].get("msg_id", "")] = message["content"]
        return self.replies.pop(request)

    def run(self, code: str, timeout: float = DEADLINE, **kw: Any) -> Cell:
        """Run a cell to its end."""
        return self.finish(self.send(code, **kw), timeout)

    def ok(self, code: str, **kw: Any) -> Cell:
        """Run a cell that must not fail."""
        cell = self.run(code, **kw)
        assert cell.status == "ok", cell.all
        return cell

    def fails(self, code: str, **kw: Any) -> Cell:
        """Run a cell that must fail."""
        cell = self.run(code, **kw)
        assert cell.status == "error", cell.all
        return cell

    def completions(self, code: str) -> list[str]:
        """What Tab offers at the end of the code, each without what is typed already."""
        content = self.client.complete(code, reply=True, timeout=DEADLINE)["content"]
        start = code[content["cursor_start"] :]
        word = code.split()[-1]
        return [word[: len(word) - len(start)] + match for match in content["matches"]]

    def close(self, now: bool = False) -> None:
        """Shut the kernel down as a front end does."""
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=now)


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The program under test."""
    path = tmp_path_factory.mktemp("bin") / "tfcluster"
    subprocess.run(["go", "build", "-o", str(path), "."], cwd=ROOT, check=True)
    return path


@pytest.fixture(scope="session")
def prefix(binary: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where the kernel is installed."""
    path = tmp_path_factory.mktemp("prefix")
    board = ROOT / ".venv-tensorboard" / "bin" / "python"
    command = [
        str(binary),
        "install",
        "--prefix",
        str(path),
        "--python",
        sys.executable,
        "--tensorboard-python",
        str(board),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


@pytest.fixture
def env(tmp_path: pathlib.Path, binary: pathlib.Path) -> Iterator[dict[str, str]]:
    """An environment of the test's own; whatever is left with it in the end is a leftover."""
    marker = f"TFCLUSTER_TEST={tmp_path}"
    home = tmp_path / "home"
    home.mkdir()
    run = pathlib.Path(tempfile.mkdtemp(prefix="tf"))  # short: it holds sockets
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("TFCLUSTER", "JUPYTER", "XDG"))},
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(run),
        "TFCLUSTER_HOME": str(tmp_path / "state"),
        "TFCLUSTER_TEST": str(tmp_path),
        "TFCLUSTER_BINARY": str(binary),
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    yield env
    try:
        wait_for("the end of what the test started", lambda: not processes(marker), 15)
    except AssertionError:
        left = processes(marker)
        for pid in left:
            os.kill(pid, 9)
        raise AssertionError(f"left behind: {left}") from None
    finally:
        # A killed kernel's gate stays until the next kernel sweeps it.
        files = {str(path.relative_to(run)) for path in run.rglob("*") if not path.is_dir()}
        files -= {name for name in files if "/gate-" in name}
        shutil.rmtree(run)
    assert not files, f"left behind: {files}"


@pytest.fixture
def notebook(prefix: pathlib.Path, env: dict[str, str], tmp_path: pathlib.Path) -> Iterator[Notebook]:
    """A fresh notebook in a folder of its own."""
    book = Notebook(prefix, env, tmp_path)
    yield book
    book.close()
