"""A client that repeats what VS Code's Jupyter extension does with a kernel: where it looks for kernelspecs, how it
starts a kernel, and what it sends.

It is not VS Code itself, nor its code. What is repeated was read in microsoft/vscode-jupyter at commit 3d24702e0
(July 2026): in src/kernels raw (finder, launcher, session), kernel.ts, helpers.ts and execution/cellExecution.ts.
It speaks ZeroMQ by itself, without jupyter_client's manager and without a Jupyter server.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import zmq
from conftest import DEADLINE, alive
from jupyter_client.session import Session

RETRY = 0.5  # seconds between requests for kernel_info


def search_paths(env: dict[str, str], prefixes: tuple[pathlib.Path, ...] = ()) -> list[pathlib.Path]:
    """The folders of kernelspecs: JUPYTER_PATH's, the user's and the system's, then those of known interpreters."""
    home = pathlib.Path(env["HOME"])
    data = env.get("JUPYTER_DATA_DIR") or os.path.join(env.get("XDG_DATA_HOME") or home / ".local" / "share", "jupyter")
    given = env["JUPYTER_PATH"].split(os.pathsep) if env.get("JUPYTER_PATH") else []
    roots = [*given, data, "/usr/local/share/jupyter", "/usr/share/jupyter", home / ".local" / "share" / "jupyter"]
    found = [pathlib.Path(root) / "kernels" for root in roots]
    return list(dict.fromkeys(found + [prefix / "share" / "jupyter" / "kernels" for prefix in prefixes]))


def find(env: dict[str, str], prefixes: tuple[pathlib.Path, ...] = ()) -> list[dict[str, Any]]:
    """The kernelspecs that VS Code lists beside the interpreters, each with the prefix of its environment."""
    specs = []
    of_prefix = {prefix / "share" / "jupyter" / "kernels": prefix for prefix in prefixes}
    for folder in search_paths(env, prefixes):
        for file in sorted(folder.glob("*/kernel.json")):
            spec = json.loads(file.read_text())
            spec["argv"] = [word.replace("{resource_dir}", str(file.parent)) for word in spec["argv"]]
            spec["prefix"], spec["file"] = of_prefix.get(folder), str(file)
            # Kernels of its own interpreters have these names; those of other languages need no interpreter.
            default = file.parent.name.removeprefix("python").isdigit() or spec["display_name"] in (
                "Python 3",
                "Python 3 (ipykernel)",
            )
            # In a folder of no interpreter, "python" may be any: such a kernelspec is hidden.
            ambiguous = spec["prefix"] is None and spec["argv"][0] in ("python", "python3")
            if spec["language"] == "python" and not default and not ambiguous:
                specs.append(spec)
    return specs


def descendants(pid: int) -> list[int]:
    """The processes below one, by their parents."""
    parents: dict[int, list[int]] = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found, more = [], [pid]
    while more:
        children = parents.get(more.pop(), [])
        found += children
        more += children
    return found


class Kernel:
    """One kernel as VS Code runs it: a process, and four sockets of one identity; nothing is sent to the heartbeat."""

    def __init__(self, spec: dict[str, Any], env: dict[str, str], cwd: pathlib.Path) -> None:
        self.spec, self.cwd = spec, cwd
        self.env = {**env, **spec.get("env", {}), "PYDEVD_IPYTHON_COMPATIBLE_DEBUGGING": "1"}
        if spec.get("prefix"):  # activated
            self.env |= {"VIRTUAL_ENV": str(spec["prefix"]), "PATH": f"{spec['prefix']}/bin:{env['PATH']}"}
        self.start()

    def start(self) -> None:
        """Start the process with a connection file of its own, and connect before it listens."""
        runtime = pathlib.Path(self.env["XDG_RUNTIME_DIR"]) / "jupyter" / "runtime"
        runtime.mkdir(parents=True, exist_ok=True)
        self.file = runtime / f"kernel-v3{secrets.token_hex(20)}.json"
        key = secrets.token_hex(16)
        with contextlib.ExitStack() as held:
            sockets = [held.enter_context(socket.socket()) for _ in range(5)]
            for listening in sockets:
                listening.bind(("127.0.0.1", 0))
            ports = [listening.getsockname()[1] for listening in sockets]
        names = ("control_port", "hb_port", "iopub_port", "shell_port", "stdin_port")
        connection = {
            "version": 0,
            "transport": "tcp",
            "ip": "127.0.0.1",
            "key": key,
            "signature_scheme": "hmac-sha256",
        }
        connection |= {"kernel_name": self.spec["display_name"]} | dict(zip(names, ports, strict=True))
        self.file.write_text(json.dumps(connection))
        self.session = Session(key=key.encode(), username=secrets.token_hex(8), session=secrets.token_hex(16))
        argv = [word.replace("{connection_file}", str(self.file)) for word in self.spec["argv"]]
        self.log = (self.cwd / "kernel.log").open("ab")
        self.process = subprocess.Popen(argv, env=self.env, cwd=self.cwd, stdout=self.log, stderr=self.log)
        self.context = zmq.Context()
        self.sockets = {}
        identity = secrets.token_hex(16).encode()
        for name, port in zip(names, ports, strict=True):
            channel = name.removesuffix("_port")
            if channel == "hb":
                continue
            link = self.sockets[channel] = self.context.socket(zmq.SUB if channel == "iopub" else zmq.DEALER)
            link.linger = 0
            if channel == "iopub":
                link.subscribe(b"")
            else:
                link.routing_id = identity
            link.connect(f"tcp://127.0.0.1:{port}")
        self.seen: list[dict[str, Any]] = []

    def send(self, kind: str, content: dict[str, Any], channel: str = "shell", **more: Any) -> str:
        """Send a message, and return its ID."""
        message = self.session.msg(kind, content, metadata=more.get("metadata"))
        self.session.send(self.sockets[channel], message)
        return message["header"]["msg_id"]

    def messages(self, seconds: float = DEADLINE) -> Iterator[tuple[str, dict[str, Any]]]:
        """What comes, on whichever channel, until the time is over."""
        poller, end = zmq.Poller(), time.monotonic() + seconds
        names = {link: channel for channel, link in self.sockets.items()}
        for link in names:
            poller.register(link, zmq.POLLIN)
        while (left := end - time.monotonic()) > 0:
            for link, _ in poller.poll(min(left, 1) * 1000):
                _, frames = self.session.feed_identities(link.recv_multipart())
                message = self.session.deserialize(frames)
                self.seen.append(message)
                yield names[link], message
            assert self.process.poll() is None, f"the kernel ended:\n{self.log_text()}"

    def log_text(self) -> str:
        """What the kernel wrote."""
        return (self.cwd / "kernel.log").read_text()

    def reply(self, request: str, channel: str = "shell") -> dict[str, Any]:
        """A request's reply."""
        for where, message in self.messages():
            if where == channel and message["parent_header"].get("msg_id") == request:
                return message["content"]
        raise AssertionError(f"no reply on {channel}; the kernel wrote:\n{self.log_text()}")

    def ready(self) -> dict[str, Any]:
        """Ask for kernel_info on shell and control, again and again, until IOPub and either have answered."""
        end, info, published = time.monotonic() + DEADLINE, None, False
        while time.monotonic() < end:
            for channel in ("control", "shell"):
                self.send("kernel_info_request", {}, channel)
            for where, message in self.messages(RETRY):
                published = published or where == "iopub"
                info = message["content"] if message["msg_type"] == "kernel_info_reply" else info
                if info and published:
                    return info
        raise AssertionError(f"the kernel does not answer; it wrote:\n{self.log_text()}")

    def execute(self, code: str, hidden: bool = False) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Run a cell, or hidden code, until it is answered and idle; its reply and its messages on IOPub."""
        content = {"code": code, "silent": False, "store_history": not hidden, "user_expressions": {}}
        metadata = {} if hidden else {"cellId": "vscode-notebook-cell:/notebook.ipynb#W0sZmlsZQ=="}
        request = self.send(
            "execute_request", {**content, "allow_stdin": True, "stop_on_error": False}, metadata=metadata
        )
        return self.finish(request)

    def finish(self, request: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Read until a request is answered and idle."""
        reply, published, idle = None, [], False
        for channel, message in self.messages():
            if message["parent_header"].get("msg_id") != request:
                continue
            if channel == "iopub":
                published.append(message)
                idle = idle or message["content"].get("execution_state") == "idle"
            elif channel == "shell":
                reply = message["content"]
            if reply and idle:
                return reply, published
        raise AssertionError(f"the cell does not end; it published {[m['msg_type'] for m in published]}")

    def interrupt(self) -> None:
        """Press stop: a message, or SIGINT for every process below the kernel and for the kernel."""
        if self.spec.get("interrupt_mode") == "message":
            self.reply(self.send("interrupt_request", {}, "control"), "control")
            return
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)

    def end(self) -> None:
        """Close the notebook: SIGTERM for every process below the kernel, then for the kernel; no shutdown_request."""
        pid = self.process.pid
        for below in descendants(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(below, signal.SIGTERM)
        self.process.terminate()
        self.context.destroy(linger=0)
        self.process.wait(DEADLINE)
        assert not alive(pid)
        self.file.unlink(missing_ok=True)
        self.log.close()

    def restart(self) -> dict[str, Any]:
        """Restart: the process is ended and another one started, with another connection file."""
        self.end()
        self.start()
        return self.ready()
