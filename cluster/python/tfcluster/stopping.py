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
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from tfcluster.channel import Channel

EXIT_CODE = 128 + signal.SIGTERM
WAKE = signal.SIGRTMIN + 4  # interrupts a system call of the main thread, and nothing else
_POLL = 0.05  # seconds between two looks at whether the handler was called
_WAKES_OF_OWN = 3  # where that cannot be seen, since the handler is the program's own


class Stopper:
    """Lets a stop reach this task's program. install() belongs to the main thread."""

    def __init__(self, channel: Channel, before: Callable[[], bool]) -> None:
        """before is asked first when the program is to stop; True: it has seen to it."""
        self._channel = channel
        self._before = before
        self._entered = False  # the handler was called, or an agreed step was acted at
        self._following = False

    def install(self) -> None:
        """Takes SIGTERM, and listens to the agent."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(WAKE, lambda _number, _frame: None)
        os.register_at_fork(after_in_child=self._leave_child)
        self._channel.on("stop", self._signal_sent)
        self._channel.on("ask_step", self._tell_step)
        self._channel.on("act_at_step", self._act_at_step)
        self._channel.listen()

    def _leave_child(self) -> None:
        """A process that the program forks is ended by SIGTERM: Pool and Process.terminate() send it."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

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
            _thread.interrupt_main(signal.SIGTERM)
            self._follow()
            return
        handler = signal.getsignal(signal.SIGTERM)
        if handler == signal.SIG_DFL:
            os.kill(os.getpid(), signal.SIGTERM)
        if not callable(handler):  # ignored: the driver has to end this task
            return
        self._channel.send("stopping")
        if handler == self._handle:
            self._entered = True
            raise SystemExit(EXIT_CODE)
        handler(int(signal.SIGTERM), sys._getframe())

    # -------------------------------------------------- in the channel's thread

    def _signal_sent(self, _message: dict) -> None:
        """The agent has sent SIGTERM: sees to it that its handler is called."""
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
        """Follows a stop until it has reached the program, and tells the agent then."""
        if not self._following:
            self._following = True
            threading.Thread(target=self._follower, name="tfcluster-stop", daemon=True).start()

    def _follower(self) -> None:
        handler = signal.getsignal(signal.SIGTERM)
        if not callable(handler):
            return
        own = handler != self._handle
        if own:  # whatever the program's handler does has the whole grace
            self._channel.steps.forget()
            self._channel.send("stopping")
        wakes = 0
        while not self._entered and not (own and wakes == _WAKES_OF_OWN):
            # A signal that comes just before a system call is noticed when that ends.
            wake_main()
            wakes += 1
            time.sleep(_POLL)
        if not own:  # not told by the handler: one that wrote to the socket might find it locked
            self._channel.send("stopping")


def wake_main() -> None:
    """Interrupts a system call in which the main thread waits."""
    with contextlib.suppress(OSError, RuntimeError):  # the program has ended
        signal.pthread_kill(threading.main_thread().ident or 0, WAKE)


def handled_by_python(number: int) -> bool:
    """Whether the handler of a signal is Python's own C function, which WAKE certainly has."""
    return _handler_address(number) == _handler_address(WAKE)


def _handler_address(number: int) -> int:
    old = ctypes.create_string_buffer(256)  # struct sigaction, which begins with the handler's address
    if ctypes.CDLL(None).sigaction(number, None, old) != 0:
        return -number
    return int.from_bytes(old.raw[: ctypes.sizeof(ctypes.c_void_p)], sys.byteorder)
