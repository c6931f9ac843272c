"""How the request to stop reaches a program.

The agent sends SIGTERM and says so on the control socket too, since SIGTERM alone does
not always arrive: TensorFlow and JAX put a handler of their own in the place of
Python's as soon as a program trains with others (preemption_notifier.cc). Python's
handler, which raises SystemExit or is the program's own, is then called by way of
_thread.interrupt_main.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from tfcluster.channel import Channel

EXIT_CODE = 128 + signal.SIGTERM
WAKE = signal.SIGRTMIN + 4  # interrupts a system call of the main thread, and nothing else
_POLL = 0.02  # seconds between two looks at whether the handler was called


class Stopper:
    """Lets a stop reach this task's program. install() belongs to the main thread."""

    def __init__(self, channel: Channel, before: Callable[[], bool]) -> None:
        """before is asked first when the program is to stop; True: it has seen to it."""
        self._channel = channel
        self._before = before
        self._entered = False  # the handler was called, or an agreed step was acted at
        self._announcing = False

    def install(self) -> None:
        """Takes SIGTERM, and listens to the agent."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(WAKE, lambda _number, _frame: None)
        self._channel.on("stop", lambda _message: self._interrupt())
        self._channel.on("ask_step", self._tell_step)
        self._channel.on("act_at_step", self._act_at_step)
        self._channel.listen()

    # -------------------------------------------------------- in the main thread

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        """SIGTERM's handler, unless the program has put one of its own in its place."""
        again, self._entered = self._entered, True
        self._channel.steps.forget()
        if again or self._before():  # a second one would end the program while it saves
            return
        raise SystemExit(EXIT_CODE)

    def _stop_here(self) -> None:
        """Stops at the end of a step, in the thread that ended it."""
        if threading.current_thread() is not threading.main_thread():
            self._interrupt()
            return
        self._entered = True
        handler = signal.getsignal(signal.SIGTERM)
        if handler == self._handle:
            raise SystemExit(EXIT_CODE)
        if callable(handler):
            handler(signal.SIGTERM, sys._getframe())

    # -------------------------------------------------- in the channel's thread

    def _interrupt(self) -> None:
        """Has the main thread call SIGTERM's handler where the signal itself does not."""
        self._channel.steps.forget()
        self._announce()
        if signal.getsignal(signal.SIGTERM) != self._handle:
            self._entered = True  # the program's own: whatever it does has the whole grace
        if handled_by_python(signal.SIGTERM):
            return
        _thread.interrupt_main(signal.SIGTERM)
        with contextlib.suppress(OSError, RuntimeError):  # the program has ended
            signal.pthread_kill(threading.main_thread().ident or 0, WAKE)

    def _tell_step(self, message: dict) -> None:
        self._channel.send("step", round=message.get("round", 0), **self._channel.steps.position())

    def _act_at_step(self, message: dict) -> None:
        self._announce()
        counter, step = str(message.get("counter", "")), int(message.get("step", 0))
        if not self._channel.steps.act_at(counter, step, self._stop_here):
            position = self._channel.steps.position()
            self._channel.send("step", round=message.get("round", 0), passed=True, **position)

    def _announce(self) -> None:
        """Tells the agent once the program was reached. A signal handler must not write to the socket itself."""
        if self._announcing:
            return
        self._announcing = True
        threading.Thread(target=self._announcer, name="tfcluster-stop", daemon=True).start()

    def _announcer(self) -> None:
        while not self._entered:
            time.sleep(_POLL)
        self._channel.send("stopping")


def handled_by_python(number: int) -> bool:
    """Whether the handler of a signal is Python's own C function, which WAKE certainly has."""
    return _handler_address(number) == _handler_address(WAKE)


def _handler_address(number: int) -> int:
    old = ctypes.create_string_buffer(256)  # struct sigaction, which begins with the handler's address
    if ctypes.CDLL(None).sigaction(number, None, old) != 0:
        return -number
    return int.from_bytes(old.raw[: ctypes.sizeof(ctypes.c_void_p)], sys.byteorder)
