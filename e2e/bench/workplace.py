"""A folder of the bench's own, and all that runs in it: kernels, clusters, commands."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

DEADLINE = 180.0  # seconds, of every wait
MARKER = "TFCLUSTER_BENCH"


class Missing(Exception):
    """What a row needs and this machine does not have."""


class BenchError(Exception):
    """A row could not be measured; the text says why."""


@dataclass
class Cell:
    """What came of a cell. Times are the client's clock, time.time(), at receipt."""

    sent: float
    idle: float = 0.0
    answered: float = 0.0
    text: str = ""
    status: str = ""
    error: str = ""
    shown: list[str] = field(default_factory=list)

    @property
    def ended(self) -> float:
        """When both the reply and idle were in."""
        return max(self.idle, self.answered)

    @property
    def seconds(self) -> float:
        """From sending until both the reply and idle were in."""
        return self.ended - self.sent

    @property
    def all(self) -> str:
        """Everything a reader sees."""
        return "\n".join([self.text, *self.shown, self.error])


class Kernel:
    """A running kernel and its client."""

    def __init__(
        self, name: str, specs: pathlib.Path, env: dict[str, str], cwd: pathlib.Path, encryption: str = "disabled"
    ) -> None:
        self.name = name
        options = {} if encryption == "disabled" else {"transport_encryption": encryption}  # new in jupyter_client 8.9
        finder = KernelSpecManager(kernel_dirs=[str(specs)], ensure_native_kernel=False)
        self._manager = KernelManager(kernel_name=name, kernel_spec_manager=finder)
        self._manager.connection_file = str(cwd / f"kernel-{name}-{time.time_ns()}.json")
        with (cwd / f"kernel-{name}.log").open("ab") as log:  # what goes wrong in a kernel is not of the table
            self._manager.start_kernel(env=env, cwd=str(cwd), stdout=log, stderr=log, **options)
        self.client = self._manager.client()
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=DEADLINE)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The kernel's process."""
        return int(self._manager.provisioner.pid)

    @property
    def encrypted(self) -> bool:
        """Whether the connection file has keys."""
        return "curve_secretkey" in json.loads(pathlib.Path(self._manager.connection_file).read_text())

    def send(self, code: str) -> tuple[str, Cell]:
        """Send a cell without waiting."""
        cell = Cell(sent=time.time())
        return self.client.execute(code), cell

    def finish(self, request: str, cell: Cell) -> Cell:
        """Gather what comes of a cell until it is idle and answered."""
        end = time.monotonic() + DEADLINE
        while not cell.idle:
            if time.monotonic() > end:
                raise BenchError(f"a cell does not end; so far: {cell.all[-2000:]}")
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") == request:
                self._take(cell, message)
        reply: dict[str, Any] = {}
        while reply.get("parent_header", {}).get("msg_id") != request:
            try:
                reply = self.client.get_shell_msg(timeout=DEADLINE)
            except queue.Empty:
                raise BenchError("a cell is idle, but never answered") from None
        cell.answered = time.time()
        cell.status = reply["content"]["status"]
        return cell

    def first_sign(self, request: str, cell: Cell, seconds: float) -> None:
        """Wait until the cell shows something, or for some seconds when it does not."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (cell.text or cell.shown):
            try:
                message = self.client.get_iopub_msg(timeout=0.05)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") == request:
                self._take(cell, message)

    @staticmethod
    def _take(cell: Cell, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            cell.text += content["text"]
        elif kind in ("display_data", "update_display_data", "execute_result"):
            cell.shown.append(content["data"].get("text/plain", ""))
        elif kind == "error":
            cell.error = "\n".join(content["traceback"])
        elif kind == "status" and content["execution_state"] == "idle":
            cell.idle = time.time()

    def run(self, code: str) -> Cell:
        """Run a cell to its end, whatever that is."""
        return self.finish(*self.send(code))

    def ok(self, code: str) -> Cell:
        """Run a cell that must not fail."""
        cell = self.run(code)
        if cell.status != "ok":
            raise BenchError(f"{code.splitlines()[0]!r} failed: {cell.all[-2000:]}")
        return cell

    def close(self) -> None:
        """Shut the kernel down as a front end does."""
        self.client.stop_channels()
        if self._manager.has_kernel:
            self._manager.shutdown_kernel()
        self._manager.cleanup_resources()


class Workplace:
    """Owns the folder, the environment, and what is left running in the end."""

    def __init__(self, prefix: pathlib.Path) -> None:
        spec = prefix / "share" / "jupyter" / "kernels" / "tfcluster" / "kernel.json"
        if not spec.is_file():
            raise BenchError(f"no kernel tfcluster in {prefix}: make install")
        argv = json.loads(spec.read_text())["argv"]
        if "--python" not in argv:
            raise BenchError(f"{spec} names no --python, so ipykernel cannot be run beside it: make install")
        self.tool: str = argv[0]
        self.python: str = argv[argv.index("--python") + 1]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tfb-"))
        for name in ("home", "run", "work"):
            (self.folder / name).mkdir(mode=0o700)
        self._specs = self.folder / "kernels"
        shutil.copytree(spec.parent, self._specs / "tfcluster")
        (self._specs / "plain").mkdir()
        (self._specs / "plain" / "kernel.json").write_text(
            json.dumps(
                {
                    "argv": [self.python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                    "display_name": "plain",
                    "language": "python",
                }
            )
        )
        dropped = ("TFCLUSTER", "JUPYTER", "XDG", "TF_", "OMP_", "IPYTHON")
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(dropped)},
            "HOME": str(self.folder / "home"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "TFCLUSTER_HOME": str(self.folder / "state"),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            MARKER: str(self.folder),
        }

    @property
    def work(self) -> pathlib.Path:
        """The kernels' working directory."""
        return self.folder / "work"

    @contextlib.contextmanager
    def kernel(self, name: str, encryption: str = "disabled") -> Iterator[Kernel]:
        """A fresh kernel, tfcluster or plain, for a while; encryption is Jupyter's transport_encryption."""
        kernel = Kernel(name, self._specs, self.env, self.work, encryption)
        try:
            yield kernel
        finally:
            kernel.close()

    def call(self, *words: str) -> str:
        """What the command line prints."""
        done = subprocess.run(
            [self.tool, *words], env=self.env, cwd=self.work, capture_output=True, text=True, timeout=DEADLINE
        )
        if done.returncode:
            raise BenchError(f"tfcluster {' '.join(words)}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def running(self) -> list[int]:
        """Every living process that was started here."""
        mark, found = f"{MARKER}={self.folder}".encode(), []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def quiet(self, seconds: float = 15) -> float:
        """Wait until nothing runs here; returns the seconds it took."""
        began = time.monotonic()
        while self.running():
            if time.monotonic() > began + seconds:
                raise BenchError(f"still running after {seconds} s: {self.running()}")
            time.sleep(0.02)
        return time.monotonic() - began

    def close(self) -> list[int]:
        """End what is left and remove the folder; returns the leftovers."""
        with contextlib.suppress(BenchError):
            self.quiet(5)
        left = self.running()
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        return left


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, of its living descendants, and of those they have waited for."""
    ticks, todo = 0, [pid]
    while todo:
        process = pathlib.Path("/proc") / str(todo.pop())
        with contextlib.suppress(OSError):
            ticks += sum(int(word) for word in (process / "stat").read_text().rpartition(")")[2].split()[11:15])
            for thread in (process / "task").iterdir():
                todo += [int(child) for child in (thread / "children").read_text().split()]
    return ticks / os.sysconf("SC_CLK_TCK")
