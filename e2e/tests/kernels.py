"""A notebook's kernel as a front end sees it, and what tests ask of processes."""

from __future__ import annotations

import contextlib
import pathlib
import queue
import time
from collections.abc import Callable
from typing import Any

import ending
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

DEADLINE = 300.0  # seconds, of every wait: a test that reaches it has failed
LEFTOVERS = 60.0  # seconds in which everything that a test started must have ended; a second is usual
GATEWAY = " pyspark-shell"  # the end of the command line of Spark's JVM
STOP_SPARK = """
import sys
if "pyspark" in sys.modules:
    from pyspark.sql import SparkSession
    session = SparkSession._instantiatedSession  # the active one is a thread's
    if session is not None:
        session.stop()
"""


def wait_for(what: str, holds: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Poll until the condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.02)


def written(path: pathlib.Path) -> str:
    """What another process writes into a file at once; the file is there, and empty, before it is written."""
    wait_for(f"the contents of {path.name}", lambda: path.exists() and path.stat().st_size > 0)
    return path.read_text()


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

    def take(self, message: dict[str, Any]) -> bool:
        """Gather one message of IOPub; return whether it is the last one."""
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
        return kind == "status" and content["execution_state"] == "idle"

    @property
    def all(self) -> str:
        """Everything a reader sees."""
        return "\n".join([self.text, *self.plain, self.result, self.error])


class Notebook:
    """One kernel and its client."""

    def __init__(self, prefix: pathlib.Path, env: dict[str, str], cwd: pathlib.Path, name: str = "tfcluster") -> None:
        specs = KernelSpecManager(kernel_dirs=[str(prefix / "share" / "jupyter" / "kernels")])
        self.manager = KernelManager(kernel_name=name, kernel_spec_manager=specs)
        self.manager.shutdown_wait_time = DEADLINE  # a kernel that is killed earlier leaves its cluster
        self.env, self.cwd = env, cwd
        self.replies: dict[str, dict[str, Any]] = {}  # of cells that run beside the one looked at
        self.seen: dict[str, list[dict[str, Any]]] = {}  # what cells published before they were looked at to their end
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
        for message in self.seen.pop(request, []):
            idle = cell.take(message) or idle
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
                else:
                    idle = cell.take(message) or idle
        cell.status, cell.count = reply["status"], reply.get("execution_count", 0)
        return cell

    def shows(self, request: str, text: str) -> None:
        """Wait until a cell shows a text."""
        shown, end = "", time.monotonic() + DEADLINE
        while text not in shown:
            if time.monotonic() > end:
                raise AssertionError(f"the cell does not show {text!r}, but:\n{shown}")
            with contextlib.suppress(queue.Empty):
                message = self.client.get_iopub_msg(timeout=0.1)
                if message["parent_header"].get("msg_id") == request:
                    self.seen.setdefault(request, []).append(message)
                    content = message["content"]
                    shown += content.get("text", "") + content.get("data", {}).get("text/plain", "")

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

    def enter(self, folder: pathlib.Path) -> None:
        """Begin a test in its folder, with the names of a fresh Python."""
        self.cwd = folder
        self.ok(f"%reset -f\nimport os\nos.chdir({str(folder)!r})\ndel os")
        self.lasting = set(self.processes())

    def leave(self) -> None:
        """End what a test has left: clusters, Spark's session, its files; no other process may be left."""
        if ending.interrupted():
            return
        try:
            self.run("None", timeout=20)
        except AssertionError:  # a cell of a test that failed still runs
            self.manager.interrupt_kernel()
        for _ in range(5):
            if self.run("%tfcluster shutdown --force").status == "error":
                break  # there is no cluster
        self.ok(STOP_SPARK)
        with contextlib.suppress(AssertionError):
            wait_for("the end of what the test started", lambda: not self.left(), LEFTOVERS)
        assert not self.left(), f"left behind: {self.left()}"
        for path in pathlib.Path(self.env["TFCLUSTER_TEST"]).iterdir():
            if not path.is_dir():
                path.unlink()

    def processes(self) -> dict[int, str]:
        """Return the processes of the kernel and of what it has started."""
        return ending.processes(f"TFCLUSTER_TEST={self.env['TFCLUSTER_TEST']}\0")

    def left(self) -> dict[int, str]:
        """Return the processes that were not there before the test; Spark's JVM lasts as long as Python."""
        found = self.processes()
        return {
            pid: command for pid, command in found.items() if pid not in self.lasting and not command.endswith(GATEWAY)
        }

    def close(self) -> None:
        """Shut the kernel down as a front end does."""
        self.client.stop_channels()
        if ending.interrupted():
            self.manager.shutdown_wait_time = 4
        if self.manager.has_kernel:
            self.manager.shutdown_kernel()
