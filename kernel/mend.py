"""Keeps ipykernel working after an interrupt that arrives in Python's threading module.

The kernel runs this file in the child, before any cell, with `ip` as IPython's shell. An interrupt raises
KeyboardInterrupt in the main thread between any two instructions; three places of `threading`, which ipykernel uses for
each message and each cell, do not survive that.
"""

import threading


class OfLock:
    """`__enter__` or `__exit__` of a Condition, as the method of its lock.

    Condition has them as Python functions: an interrupt in `__enter__` after the lock was taken, or in `__exit__`
    before it was given back, leaves it locked. ipykernel's IOPub thread then hangs in the Event of a flush, and nothing
    is published any more; or the main thread hangs in the Event of the history. The method of the lock is one call in
    C, which an interrupt does not divide.
    """

    def __init__(self, name):
        self.name = name
        self.plain = getattr(threading.Condition, name)

    def __get__(self, condition, owner=None):
        return self.plain if condition is None else getattr(condition._lock, self.name)


for name in "__enter__", "__exit__":
    setattr(threading.Condition, name, OfLock(name))

# Before Python 3.13, is_alive releases the lock of a running thread if an interrupt arrives while it tries that lock,
# and takes the thread for ended from then on (https://github.com/python/cpython/issues/90882). ipykernel then sends on
# the IOPub socket from every thread at once, and ZeroMQ mixes the frames of messages. join and fork set _is_stopped.
thread = ip.kernel.iopub_thread.thread  # noqa: F821
if hasattr(thread, "_tstate_lock"):
    thread.is_alive = lambda: not thread._is_stopped
