"""The delivery of the request to stop to a program.

The agent sends SIGTERM and a message on the control socket, because the signal alone
may not reach Python: TensorFlow and JAX replace Python's handler in distributed
training (preemption_notifier.cc). Python's handler, which raises SystemExit or is the
program's own, is then called by _thread.interrupt_main.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from tfcluster.channel import Channel

EXIT_CODE = 128 + signal.SIGTERM
WAKE = signal.SIGRTMIN + 4  # interrupts a system call of the main thread, without other effects
_POLL = 0.05  # interval of checks whether the handler was called, in seconds
_WAKES_OF_OWN = 3  # if that is unknown because the handler is the program's own


class Stopper:
    """The delivery of a stop to this task's program. The main thread calls install()."""

    def __init__(self, channel: Channel, before: Callable[[], bool]) -> None:
        """Takes before, which is called first at a stop; if it returns True, nothing else is done."""
        self._channel = channel
        self._before = before
        self._entered = False  # the handler was called, or the agreed step reached
        self._following = False

    def install(self) -> None:
        """Installs the handler of SIGTERM and of the agent's messages."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(WAKE, lambda _number, _frame: None)
        os.register_at_fork(after_in_child=self._leave_child)
        self._channel.on("stop", self._signal_sent)
        self._channel.on("ask_step", self._tell_step)
        self._channel.on("act_at_step", self._act_at_step)
        self._channel.listen()

    def _leave_child(self) -> None:
        """Resets SIGTERM in processes that the program forks: Pool and Process.terminate() send it."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    # -------------------------------------------------------- in the main thread

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        """Handles SIGTERM, unless the program has replaced the handler."""
        again, self._entered = self._entered, True
        self._channel.steps.forget()
        if again or self._before():  # a second SystemExit would interrupt saving
            return
        raise SystemExit(EXIT_CODE)

    def _stop_here(self) -> None:
        """Stops at the end of a step, in the thread that ended it."""
        if threading.current_thread() is not threading.main_thread():
            _thread.interrupt_main(signal.SIGTERM)
            self._follow()
            return
        handler = signal.getsignal(signal.SIGTERM)
        if handler == signal.SIG_DFL:
            os.kill(os.getpid(), signal.SIGTERM)
        if not callable(handler):  # the signal is ignored: the driver kills this task
            return
        self._channel.send("stopping")
        if handler == self._handle:
            self._entered = True
            raise SystemExit(EXIT_CODE)
        handler(int(signal.SIGTERM), sys._getframe())

    # -------------------------------------------------- in the channel's thread

    def _signal_sent(self, _message: dict) -> None:
        """Handles the agent's message about SIGTERM: makes sure that its handler is called."""
        if not handled_by_python(signal.SIGTERM):
            _thread.interrupt_main(signal.SIGTERM)
        self._follow()

    def _tell_step(self, message: dict) -> None:
        self._channel.send("step", round=message.get("round", 0), **self._channel.steps.position())

    def _act_at_step(self, message: dict) -> None:
        steps, counter, step = self._channel.steps, str(message.get("counter", "")), int(message.get("step", 0))
        if message.get("confirmed"):
            steps.confirm(counter, step)
            return

        def answer(passed: bool) -> None:
            self._channel.send("step", round=message.get("round", 0), passed=passed, **steps.position())

        answer(not steps.act_at(counter, step, self._stop_here, lambda: answer(True)))

    def _follow(self) -> None:
        """Starts a thread that waits until the stop has reached the program, then reports that."""
        if not self._following:
            self._following = True
            threading.Thread(target=self._follower, name="tfcluster-stop", daemon=True).start()

    def _follower(self) -> None:
        handler = signal.getsignal(signal.SIGTERM)
        if not callable(handler):
            return
        own = handler != self._handle
        if own:  # the program's handler has the whole grace time
            self._channel.steps.forget()
            self._channel.send("stopping")
        wakes = 0
        while not self._entered and not (own and wakes == _WAKES_OF_OWN):
            # A signal just before a system call is handled only after it.
            wake_main()
            wakes += 1
            time.sleep(_POLL)
        if not own:  # not sent by the handler, for which the socket might be locked
            self._channel.send("stopping")


def wake_main() -> None:
    """Interrupts a system call of the main thread."""
    with contextlib.suppress(OSError, RuntimeError):  # the program has ended
        signal.pthread_kill(threading.main_thread().ident or 0, WAKE)


def handled_by_python(number: int) -> bool:
    """Reports whether a signal's handler is Python's own C function, which WAKE certainly has."""
    return _handler_address(number) == _handler_address(WAKE)


def _handler_address(number: int) -> int:
    old = ctypes.create_string_buffer(256)  # struct sigaction, which begins with the handler's address
    if ctypes.CDLL(None).sigaction(number, None, old) != 0:
        return -number
    return int.from_bytes(old.raw[: ctypes.sizeof(ctypes.c_void_p)], sys.byteorder)
