"""A Python process that imports TensorFlow once and forks the tasks.

    python -m tfcluster.zygote --socket PATH [--bare]

Agents of one host and user connect to a unix socket and speak JSON lines:

    zygote → agent  {"op":"ready","python":{…}}            after the imports; before that no task can be forked
    agent → zygote  {"op":"spawn","id":…,"argv":[…]|null,"base":{…},"env":{…},"unset":[…],"cwd":…,"fresh":…,"spec":{…}}
                    with three descriptors (SCM_RIGHTS): stdout, stderr, control; base is the agent's environment
    zygote → agent  {"op":"spawned","id":…,"pid":…,"fresh":reason or ""} | {"op":"error","id":…,"error":…}
    zygote → agent  {"op":"exited","id":…,"pid":…,"code":…,"signal":…}
    agent → zygote  {"op":"kill","id":…,"signal":…}        to the task's session; 9 also to processes that left it
    agent → zygote  {"op":"retire"}                        new agents are to get another zygote
    zygote → agent  {"op":"retired"}                       the socket is removed: new agents start another zygote

A task ends with its agent's connection, or with the zygote. The zygote ends one second
after its last connection closed. It runs no user code. A task gets a new interpreter
if a fork would behave differently (see Zygote.why_fresh).
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any

from tfcluster import jsonlines, manifest, processes
from tfcluster.feed_link import FAULT
from tfcluster.forked import become_task
from tfcluster.interpreter import describe_bare, describe_warm, installed, nvidia_open, one_line

LINGER = 1.0  # seconds without a connection before the zygote ends
FIRST_CONNECTION = 30.0  # seconds for the starter to connect
SEARCHES = 10  # for a task's processes at most: each finds forks made during the search before
MAX_REQUEST = 64 << 20  # bytes of one request line


def main(argv: list[str] | None = None) -> int:
    """Serves until no agent is left; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tfcluster.zygote")
    parser.add_argument("--socket", required=True, help="path of the unix socket to serve on")
    parser.add_argument("--bare", action="store_true", help="import nothing; every task gets a fresh interpreter")
    options = parser.parse_args(argv)
    environment = dict(os.environ)
    listener = listen(options.socket)
    processes.control(processes.PR_SET_CHILD_SUBREAPER, 1)
    zygote = Zygote(listener, options.socket, environment, warm=not options.bare)
    try:
        if options.bare:
            zygote.ready(describe_bare())
        else:
            zygote.import_while_serving()
        zygote.serve()
    finally:
        zygote.retire()
        zygote.kill_all()
    return 0


def listen(path: str) -> socket.socket:
    """Returns a listening socket at path that only this user can open."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(64)
    listener.setblocking(False)
    return listener


class Connection:
    """A connection of one agent."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.received = jsonlines.Reader(
            MAX_REQUEST, f"a request of the agent has more than {MAX_REQUEST} bytes; {FAULT}"
        )
        self.unsent = bytearray()
        self.pids: dict[str, int] = {}  # of each spawned task that was not dropped

    def close(self) -> None:
        self.received.close()
        self.socket.close()


class Zygote:
    """The socket, the connections and the children. One thread at a time uses it."""

    def __init__(self, listener: socket.socket, path: str, environment: dict[str, str], *, warm: bool) -> None:
        self._listener: socket.socket | None = listener
        self._path = path
        self._inode = os.stat(path).st_ino
        self._environment = environment
        self._warm = warm
        self._packages: tuple[Any, ...] = installed() if warm else ()
        self._greeting: dict[str, Any] | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._connections: dict[int, Connection] = {}
        self._children: dict[int, tuple[Connection | None, str]] = {}
        self._ends_at: float | None = time.monotonic() + FIRST_CONNECTION

    # -------------------------------------------------------------- life

    def import_while_serving(self) -> None:
        """Imports in the main thread while another thread serves connections and notices when they close."""
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done,), daemon=True)
        watcher.start()
        # Imported objects are kept: collecting garbage would take a fifth of the import's time, and
        # a single collection at its end a tenth, to free a few MB.
        gc.disable()
        try:
            described = describe_warm()
            manifest.warm()
        finally:
            done.set()
            watcher.join()
            gc.freeze()  # the collector would touch, and so copy, pages shared with tasks
            gc.enable()
        self.ready(described)

    def _watch(self, done: threading.Event) -> None:
        while not done.is_set():
            if not self._step(0.05):
                os._exit(0)

    def ready(self, described: dict[str, Any]) -> None:
        """Accepts requests to spawn tasks from now on."""
        self._greeting = {"op": "ready", "python": described}
        for connection in list(self._connections.values()):
            self._send(connection, self._greeting)

    def serve(self) -> None:
        """Serves until LINGER after the last connection closed. Main thread only."""
        wake_r, wake_w = socket.socketpair()
        for end in (wake_r, wake_w):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_w.fileno(), warn_on_full_buffer=False)
        self._selector.register(wake_r, selectors.EVENT_READ)
        self._wake = wake_r
        while self._step(0.25):
            self._reap()

    def _step(self, timeout: float) -> bool:
        """Handles received data; returns False once no agent needs this zygote."""
        for key, mask in self._selector.select(timeout):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, Connection):
                self._handle(key.data, mask)
            else:
                with contextlib.suppress(OSError):
                    key.fileobj.recv(4096)  # type: ignore[union-attr]
        if self._connections:
            self._ends_at = None
        elif self._ends_at is None:
            self._ends_at = time.monotonic() + LINGER
        return self._ends_at is None or time.monotonic() < self._ends_at

    def retire(self) -> None:
        """Removes the socket, so that new agents start another zygote."""
        if self._listener is None:
            return
        self._selector.unregister(self._listener)
        self._listener.close()
        self._listener = None
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == self._inode:  # otherwise it is another zygote's
                os.unlink(self._path)

    def kill_all(self) -> None:
        """Kills all descendants of this process."""
        for pid in processes.descendants(os.getpid()):
            processes.kill(pid, signal.SIGKILL)

    # ------------------------------------------------------- connections

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.getuid():
            sock.close()
            return
        sock.setblocking(False)
        connection = Connection(sock)
        self._connections[sock.fileno()] = connection
        self._selector.register(sock, selectors.EVENT_READ, connection)
        if self._greeting is not None:
            self._send(connection, self._greeting)

    def _handle(self, connection: Connection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush(connection)
            if mask & selectors.EVENT_READ and not self._receive(connection):
                self._drop(connection)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            print(f"tfcluster zygote: an agent's connection is dropped: {one_line(e)}", file=sys.stderr)
            self._drop(connection)

    def _receive(self, connection: Connection) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(connection.socket, 1 << 16, 16)
        except (BlockingIOError, InterruptedError):
            return True
        connection.received.feed(data, fds)
        if not data:
            return False
        for line in connection.received.lines():
            self._request(connection, json.loads(line))
        return True

    def _request(self, connection: Connection, request: dict[str, Any]) -> None:
        op = request["op"]
        if op == "spawn":
            self._spawn(connection, request)
        elif op == "kill":
            self._kill(connection, str(request["id"]), int(request["signal"]))
        elif op == "retire":
            self.retire()
            self._send(connection, {"op": "retired"})

    def _drop(self, connection: Connection) -> None:
        """Ends an agent's tasks with its connection."""
        if self._connections.pop(connection.socket.fileno(), None) is None:
            return
        self._selector.unregister(connection.socket)
        for name in list(connection.pids):
            self._kill(connection, name, signal.SIGKILL)
        for pid, (owner, name) in self._children.items():
            if owner is connection:
                self._children[pid] = (None, name)
        connection.close()

    def _send(self, connection: Connection, message: dict[str, Any]) -> None:
        connection.unsent += jsonlines.encode(message)
        with contextlib.suppress(OSError):  # a closed connection is noticed by reading
            self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        while connection.unsent:
            try:
                sent = connection.socket.send(connection.unsent)
            except (BlockingIOError, InterruptedError):
                break
            del connection.unsent[:sent]
        if connection.socket.fileno() in self._connections:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
            self._selector.modify(connection.socket, wanted, connection)

    # ------------------------------------------------------------- tasks

    def why_fresh(self, request: dict[str, Any]) -> str:
        """Returns why a task must not be a fork of this process; "" if it may."""
        if not self._warm or request.get("fresh"):
            return "asked"
        if installed() != self._packages:
            return "packages on disk changed since TensorFlow was imported"
        device = nvidia_open()
        return f"the Python that is forked holds {device}" if device else ""

    def _spawn(self, connection: Connection, request: dict[str, Any]) -> None:
        name = str(request["id"])
        if len(connection.received.files) < 3:
            raise ValueError(f"spawn {name}: its three descriptors did not come with it; {FAULT}")
        fds = [connection.received.files.popleft() for _ in range(3)]
        try:
            if self._greeting is None:
                raise OSError(errno.EAGAIN, "this Python has not imported TensorFlow yet")
            why = self.why_fresh(request)
            sys.stdout.flush()
            sys.stderr.flush()
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                become_task(request, fds, why, parent, self._environment)
        except OSError as e:
            self._send(connection, {"op": "error", "id": name, "error": f"cannot fork: {one_line(e)}"})
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._children[pid] = (connection, name)
        connection.pids[name] = pid
        self._send(connection, {"op": "spawned", "id": name, "pid": pid, "fresh": "" if why == "asked" else why})

    def _kill(self, connection: Connection, name: str, number: int) -> None:
        """Signals a task's session. SIGKILL also kills processes that left it, and drops an ended task."""
        pid = connection.pids.get(name)
        if pid is None:
            return
        alive = self._children.get(pid) == (connection, name)
        if not alive and pid in self._children:  # the pid was reused for another task
            del connection.pids[name]
            return
        if number == signal.SIGKILL:
            self._kill_task(pid, marker(connection, name), alive=alive)
            if not alive:
                del connection.pids[name]
            if not self._children:
                self.kill_all()  # daemons in sessions of their own may have no marker
        elif alive:
            signal_session(pid, number)
        else:
            for found in processes.in_session(os.getpid(), pid):
                processes.kill(found, number)

    def _kill_task(self, pid: int, mark: str, *, alive: bool) -> None:
        """Kills all processes of a task.

        It searches before it kills: descendants without a mark, in sessions of their own, are known as the
        task's only while it lives.
        """
        killed: set[int] = set()
        for _ in range(SEARCHES):
            found = processes.of_task(os.getpid(), pid, mark)
            new = {p for p in found if p not in self._children or p == pid} - killed
            if alive and not killed:
                signal_session(pid, signal.SIGKILL)
            if not new:
                return
            for p in new:
                processes.kill(p, signal.SIGKILL)
            killed |= new

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            connection, name = self._children.pop(pid, (None, ""))
            if connection is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            self._send(
                connection,
                {"op": "exited", "id": name, "pid": pid, "code": max(code, -1), "signal": max(-code, 0)},
            )


def signal_session(pid: int, number: int) -> None:
    """Signals the session of a task that lives."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:  # just forked: it has no session yet
        processes.kill(pid, number)
    except OSError:
        pass


def marker(connection: Connection, name: str) -> str:
    """Returns the environment entry by which a task's processes are found after they left its session."""
    return f"{processes.MARKER}={name}"


if __name__ == "__main__":
    sys.exit(main())
