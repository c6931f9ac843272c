"""Executors of Spark on a host that does not answer, which Spark misses only after spark.network.timeout."""

from __future__ import annotations

import socket
import time
from typing import Any

from tfcluster import spark_errors

_TIMEOUT = "spark.network.timeout"
_DEFAULT = "120s"
_LIMIT = 10.0  # seconds: the driver waits as long for an answer


def avoid(session: Any, host: str, replaced: set[str]) -> tuple[int, str]:
    """Has Spark replace its executors on a host; returns how many, and what to wait for, if it cannot.

    replaced has the executors of earlier calls, which Spark lists until they are gone, and gets these.
    """
    began = time.monotonic()
    until = f"it gives them up after {_TIMEOUT} = {session.conf(_TIMEOUT, _DEFAULT)}"
    alive = f"Spark still counts its executors on {host} as alive, and may choose them: {until}"
    if session.connect:
        return 0, alive
    before = len(replaced)
    try:
        found = _replace(session._sc, host, replaced, began + _LIMIT)
    except Exception as e:
        return len(replaced) - before, f"{alive} ({spark_errors.words(e)})"
    if not found:
        return 0, f"Spark lists no executor on a host of the name {host}; if it counts some there as alive, {until}"
    return len(replaced) - before, ""


def _replace(sc: Any, host: str, replaced: set[str], until: float) -> bool:
    """Has Spark end its executors on a host, and request others for them; reports whether there are some.

    killExecutors would lower the number of executors that the application asks for.
    """
    known, found = names(host), False
    executors = sc._jsc.sc().statusStore().executorList(True)
    for i in range(executors.size()):
        executor = executors.apply(i)
        on, _, _ = executor.hostPort().rpartition(":")
        if executor.id() == "driver" or not same(known, names(on)):
            continue
        found = True
        if executor.id() in replaced:
            continue
        if time.monotonic() > until:  # the caller has given up: an agent may have been started there since
            raise RuntimeError(f"Spark was asked for too long about its executors on {host}")
        if not sc._jsc.sc().killAndReplaceExecutor(executor.id()):
            raise RuntimeError(f"Spark does not replace its executor {executor.id()} on {host}")
        replaced.add(executor.id())
    return found


def names(host: str) -> set[str]:
    """Returns the names and addresses by which Spark and an agent may call a host: see same."""
    host = host.strip("[]")
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):  # a name that this machine does not know, or that is none
        addresses = set()
    return {host} | {a for a in addresses if not a.startswith("127.") and a != "::1"}


def same(one: set[str], other: set[str]) -> bool:
    """Reports whether names are of one host: they share one, or one is the other without its domain."""
    return not one.isdisjoint(other) or any(_without_domain(a, b) or _without_domain(b, a) for a in one for b in other)


def _without_domain(short: str, name: str) -> bool:
    return "." not in short and ":" not in short and name.startswith(f"{short}.")
