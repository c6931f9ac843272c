"""The connection from the notebook's Python to the Go engine: JSON lines on a unix socket.

A command (a magic inside Python code, a call of the Python API) has a connection of
its own, on which the engine sends streams, displays, calls back into this process and,
last, its value or error.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import IO, Any

from tfcluster import jsonlines, processes
from tfcluster.errors import ClusterError, raised
from tfcluster.feed_link import FAULT
from tfcluster.program import installed

Answer = Callable[[str, Mapping[str, Any]], Any]


class Later:
    """A value that another thread provides. begin is called once, with the function that takes the value."""

    def __init__(self, begin: Callable[[Callable[[Any], None]], None]) -> None:
        self.begin = begin


class Passed:
    """A value with contents: bytes that are passed beside the line, each in a file in memory.

    In the line they would be in memory several times.
    """

    def __init__(self, value: Any, **contents: bytes) -> None:
        self.value = value
        self.contents = contents


_CONNECT = 10.0  # seconds
_START = 30.0  # seconds until a started engine has its socket
_LINE = 2 << 30  # bytes of one line from Go: a value with the results of all tasks

_lock = threading.Lock()
_sending = threading.Lock()  # one line at a time: several threads answer on a connection
_path = ""
_engine: tuple[subprocess.Popen[bytes], socket.socket] | None = None
_started_by = 0  # the process that started the engine, in case of a fork
_owner = ""


def adopt_environment() -> bool:
    """Takes the gate's path from the environment, so that child processes do not inherit it.

    Returns False if our kernel did not start this Python.
    """
    global _path
    path = os.environ.pop("TFCLUSTER_GATE", "")
    if not path:
        return bool(_path)
    _path = path
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    rest = [p for p in entries if p and os.path.abspath(p) != ours]
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    else:
        os.environ.pop("PYTHONPATH", None)
    return True


def own(name: str) -> None:
    """Sets the name of the kernel that an engine started later serves."""
    global _owner
    _owner = name


def started() -> bool:
    """Reports whether this process has started an engine that runs."""
    return _engine is not None


def connect(*, start: bool = True) -> socket.socket:
    """Returns a new connection to the engine; starts the engine if there is none and start is True."""
    with _lock:
        _forget_dead()
        path = _path or (_start() if start else "")
    conn = socket.socket(socket.AF_UNIX)
    try:
        conn.settimeout(_CONNECT)
        conn.connect(path)
        conn.settimeout(None)
    except OSError as e:
        conn.close()
        raise ClusterError(
            f"the process tfcluster gate beside this notebook does not answer ({e}): restart the kernel"
        ) from e
    return conn


def _forget_dead() -> None:
    """Forgets a started engine that was killed, so that another is started. Called with _lock held."""
    global _path, _engine
    if _engine is None or _started_by != os.getpid() or _engine[0].poll() is None:
        return
    _engine[1].close()
    _path, _engine = "", None


def _start() -> str:
    """Starts `tfcluster gate`, which ends with this process; returns its socket's path. With _lock held."""
    global _path, _engine, _started_by
    program = os.environ.get("TFCLUSTER_BINARY") or installed() or shutil.which("tfcluster")
    if not program:
        raise ClusterError(
            "there is no program tfcluster on PATH: pip install tfcluster, or set TFCLUSTER_BINARY to its path"
        )
    ours, theirs = socket.socketpair()
    with theirs:
        argv = [program, "gate", "--python", sys.executable]
        if _owner:
            argv += ["--owner", _owner]
        engine = subprocess.Popen(
            # the engine ends when descriptor 3 closes
            ["/bin/sh", "-c", 'exec 3<&0 </dev/null; exec "$@"', "tfcluster", *argv],
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        ours.settimeout(_START)
        with ours.makefile("rb") as said:
            word = json.loads(said.readline() or b"{}")
        ours.settimeout(None)
        path = str(word["gate"])
    except (OSError, ValueError, KeyError) as e:
        ours.close()
        engine.kill()
        engine.wait()
        try_it = f'try "{program} version" in a shell'
        if isinstance(e, TimeoutError):
            raise ClusterError(f"{program} gate did not answer within {_START:g} s: {try_it}") from e
        raise ClusterError(
            f"{program} gate ended before it was ready: what it wrote is in the kernel's output (Jupyter's terminal); "
            + try_it
        ) from e
    _path, _engine, _started_by = path, (engine, ours), os.getpid()
    atexit.unregister(stop)
    atexit.register(stop)
    return path


def stop() -> None:
    """Ends the engine that this process started; clusters keep running."""
    global _path, _engine
    with _lock:
        if _engine is None:
            return
        engine, ours = _engine
        _path, _engine = "", None
    ours.close()
    try:
        engine.wait(5)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()


def send(conn: socket.socket, message: Mapping[str, Any], files: Sequence[IO[bytes]] = ()) -> None:
    """Sends a message as one line, and passes files with it."""
    line = jsonlines.encode(message, str)
    with _sending:
        jsonlines.write(conn, line, [file.fileno() for file in files])


def lines(conn: socket.socket, wake: int | None = None, woken: Callable[[], None] | None = None) -> Iterator[Any]:
    """Yields each received message until the other side closes; calls woken() whenever wake is readable."""
    received = jsonlines.Reader(_LINE, f"a message of tfcluster gate has more than {_LINE} bytes; {FAULT}")
    watched = select.poll()  # select.select refuses descriptors from 1024 on
    watched.register(conn, select.POLLIN)
    if wake is not None:
        watched.register(wake, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in watched.poll()}
        if wake is not None and wake in ready:
            os.read(wake, 1)
            if woken:
                woken()
        if conn.fileno() not in ready:
            continue
        try:
            data = conn.recv(1 << 20)
        except ConnectionResetError:  # the other side closed with something unread
            return
        if not data:
            return
        received.feed(data)
        for line in received.lines():
            if line:
                yield json.loads(line)


def answer(conn: socket.socket, message: Mapping[str, Any], how: Answer) -> None:
    """Answers one call from Go. If Go no longer waits, the answer is dropped: Go's next message says why."""

    def reply(files: Sequence[IO[bytes]] = (), **fields: Any) -> None:
        with contextlib.suppress(OSError):
            send(conn, {"op": "reply", "id": message["id"], **fields}, files)

    with contextlib.ExitStack() as opened:
        files: list[IO[bytes]] = []
        try:
            value = how(str(message["fn"]), message.get("args") or {})
            if isinstance(value, Later):
                value.begin(lambda later: reply(value=later))
                return
            fields = {"value": value}
            if isinstance(value, Passed):
                sizes = [{"name": name, "bytes": len(content)} for name, content in value.contents.items()]
                files += [opened.enter_context(_file(content)) for content in value.contents.values()]
                fields = {"value": value.value, "contents": sizes}
                value.contents.clear()  # the files have them
        except BaseException as e:
            reply(ename=type(e).__name__, error=str(e).strip() or type(e).__name__)
        else:
            reply(files, **fields)


def _file(content: bytes) -> IO[bytes]:
    """Returns a file with the whole content: in memory, on disk where glibc is older than 2.27."""
    file: IO[bytes]
    try:
        file = os.fdopen(processes.memory_file("tfcluster-content"), "wb")
    except OSError:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        file.write(content)
        file.flush()
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        raise
    return file


def command(request: Mapping[str, Any], how: Answer, show: Any) -> Any:
    """Runs one command and returns its value as Go encodes it; raises its error.

    how answers Go's calls; show has stream(name, text) and display(id, data, metadata, update).
    Interrupts are forwarded to Go, which handles them.
    """
    with contextlib.closing(connect()) as conn, _interrupts() as interrupts:
        send(conn, request)
        for message in lines(conn, interrupts.wake, lambda: send(conn, {"op": "interrupt"})):
            match message["op"]:
                case "stream":
                    show.stream(message["name"], message["text"])
                case "display":
                    show.display(message["id"], message["data"], message["metadata"], message["update"])
                case "call":
                    with interrupts.usual():
                        answer(conn, message, how)
                case "done":
                    show.close()
                    if message.get("error"):
                        raise raised(message["error"])
                    return message.get("value")
    raise ClusterError(
        "the process tfcluster gate beside this notebook has ended; clusters keep running: run this again, or "
        "restart the kernel"
    )


_lasting: threading.Thread | None = None  # answers the engine that this process started, see attend


def attend(how: Callable[[], Answer]) -> None:
    """Starts a thread that answers Go's calls also after the running command, as long as the engine lives.

    With our kernel the notebook's thread answers them.
    """
    global _lasting
    if not started() or (_lasting is not None and _lasting.is_alive()):
        return
    conn = connect(start=False)
    send(conn, {"op": "objects"})
    _lasting = threading.Thread(target=_attend, args=(conn, how), name="tfcluster-objects", daemon=True)
    _lasting.start()


def _attend(conn: socket.socket, how: Callable[[], Answer]) -> None:
    with contextlib.closing(conn), contextlib.suppress(OSError):
        for message in lines(conn):
            if message["op"] == "call":
                answer(conn, message, how())


class _interrupts:
    """A context in which SIGINT makes `wake` readable instead of raising KeyboardInterrupt."""

    def __init__(self) -> None:
        self.wake: int | None = None
        self._write = -1
        self._before: Any = None

    def __enter__(self) -> _interrupts:
        if threading.current_thread() is threading.main_thread():
            self.wake, self._write = os.pipe()
            os.set_blocking(self._write, False)
            self._before = signal.signal(signal.SIGINT, self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        if self.wake is not None:
            signal.signal(signal.SIGINT, self._before)
            os.close(self.wake)
            os.close(self._write)

    def _caught(self, _number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")

    @contextlib.contextmanager
    def usual(self) -> Iterator[None]:
        """Restores SIGINT's former handler during the context, for the user's code."""
        if self.wake is None:
            yield
            return
        signal.signal(signal.SIGINT, self._before)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, self._caught)
