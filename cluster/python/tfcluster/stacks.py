"""The stacks of this task's threads, for the agent's questions.

The thread that reads the control socket answers with the frames of all threads
(sys._current_frames). While another thread holds the GIL in native code it cannot: then the
agent sends it a signal, and faulthandler writes the stacks to a memory file, without the
GIL. The signal goes to this thread only, so that no system call of the program is
interrupted. It is sent only after this module has reported that the handler is installed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import linecache
import os
import signal
import sys
import threading
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

from tfcluster import processes
from tfcluster.channel import Channel

SIGNAL = signal.SIGRTMIN + 3
MAX_THREADS = 256
MAX_FRAMES = 100  # of a thread, innermost first
MAX_ALL_FRAMES = 4000  # of all threads
MAX_TEXT = 512  # characters of a file, a function or a line
READ_LIMIT = 0.1  # seconds to wait for lines of source files
MAX_LINES = 20_000  # lines of source that are kept

Place = tuple[str, int]  # file and line


class Stacks:
    """The answers to the agent's questions for the stacks of this process."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sources = Sources()

    def install(self) -> None:
        """Answers from now on. Call it before the channel listens."""
        self._channel.on("stacks", self._answer)

    def register(self) -> None:
        """Installs faulthandler for the signal and reports it to the agent. Call it in the main thread."""
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # without it there are no stacks under the GIL
            # A memory file, because a full pipe would block the handler. The handler appends, and the agent
            # empties the file.
            fd = processes.memory_file("tfcluster-stacks")
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
            faulthandler.register(SIGNAL, file=fd, all_threads=True)
            reader = self._channel.reader()
            self._channel.send(
                "stacks_ready",
                signal=int(SIGNAL),
                descriptor=fd,
                thread=reader.native_id,
                thread_id=reader.ident,
                main=threading.main_thread().ident,
            )

    def _answer(self, message: dict[str, Any]) -> None:
        threads, left_out = current_threads()
        self._sources.add_code(threads)
        self._channel.send(
            "stacks",
            question=int(message.get("question", 0)),
            registered=signal.getsignal(SIGNAL) == signal.SIG_DFL,  # a handler of signal.signal hides it
            threads=threads,
            threads_left_out=left_out,
        )


def current_threads() -> tuple[list[dict[str, Any]], int]:
    """Returns the state of all threads but this one, the main thread first, and the number left out."""
    main = threading.main_thread().ident
    known = dict(threading._active)  # threading.enumerate() takes a lock that another thread may hold
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    threads: list[dict[str, Any]] = []
    left_out = total = 0
    for ident in sorted(frames, key=lambda ident: ident != main):
        if len(threads) == MAX_THREADS or total >= MAX_ALL_FRAMES:
            left_out += 1
            continue
        stack, outer = walk(frames[ident])
        total += len(stack)
        thread = known.get(ident)
        threads.append(
            {
                "id": ident,
                "native_id": (thread and thread.native_id) or 0,
                "name": str(thread.name)[:MAX_TEXT] if thread else "",
                "main": ident == main,
                "frames": stack,
                "frames_left_out": outer,
            }
        )
    return threads, left_out


def walk(frame: FrameType | None) -> tuple[list[list[Any]], int]:
    """Returns a thread's frames, innermost first, as [function, file, line, ""], and the number left out."""
    stack: list[list[Any]] = []
    outer = 0
    while frame is not None:
        if len(stack) < MAX_FRAMES:
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
            stack.append([name[:MAX_TEXT], code.co_filename[:MAX_TEXT], frame.f_lineno or 0, ""])
        else:
            outer += 1
        frame = frame.f_back
    return stack, outer


class Sources:
    """Lines of source files.

    A thread reads them, and add_code waits for it for READ_LIMIT at most: a file may be on a network that
    does not answer, and that may be the reason for the question.
    """

    def __init__(self) -> None:
        self._known: dict[Place, str] = {}
        self._reader: threading.Thread | None = None

    def add_code(self, threads: Iterable[Mapping[str, Any]]) -> None:
        """Sets the last element of each frame to its line of source, if it can be read in time."""
        frames = [frame for thread in threads for frame in thread["frames"]]
        unknown = {(file, line) for _, file, line, _ in frames} - self._known.keys()
        if unknown and not (self._reader and self._reader.is_alive()):
            if len(self._known) > MAX_LINES:
                self._known = {}
            self._reader = threading.Thread(
                target=read_lines, args=(unknown, self._known), name="tfcluster-sources", daemon=True
            )
            with contextlib.suppress(RuntimeError):  # there can be no more threads
                self._reader.start()
                self._reader.join(READ_LIMIT)
        for frame in frames:
            frame[3] = self._known.get((frame[1], frame[2]), "")


def read_lines(places: Iterable[Place], into: dict[Place, str]) -> None:
    """Reads lines of files: lines of a notebook's cell from linecache, others from disk."""
    wanted: dict[str, set[int]] = {}
    for file, line in places:
        wanted.setdefault(file, set()).add(line)
    for file, numbers in wanted.items():
        for number in numbers:
            into[file, number] = ""
        cached = linecache.cache.get(file)
        with contextlib.suppress(OSError):
            if cached and len(cached) == 4:
                take(cached[2], file, numbers, into)
            elif os.path.isfile(file):
                with open(file, encoding="utf-8", errors="replace") as lines:
                    take(lines, file, numbers, into)


def take(lines: Iterable[str], file: str, numbers: set[int], into: dict[Place, str]) -> None:
    """Stores the lines of these numbers, without indentation."""
    last = max(numbers)
    for number, text in enumerate(lines, start=1):
        if number in numbers:
            into[file, number] = text.strip()[:MAX_TEXT]
        if number >= last:
            break
