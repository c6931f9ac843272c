"""The side of a Spark session: it starts agents on executors for a driver, which is in Go.

A Host serves one cluster over one unix socket, JSON lines. It lives in the notebook's process, where it borrows the
session of the notebook, or alone (`python -m tfcluster.spark_host`) with a session that it makes and ends.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import platform
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfcluster import spark_task
from tfcluster.spark_calls import Driver, Launch
from tfcluster.spark_session import Session

_POLL = 0.2  # seconds between two looks at what Spark has
_DIAL = 0.01, 0.2  # seconds between two tries to reach the driver: at first, and later
_SEND = 5  # seconds that a driver may leave unread what it is told
_PLACE = 10  # tries to find an executor with room, before an agent shares one


class Host:
    """Obeys one driver's calls on a session; run() returns when the cluster or the session is over."""

    def __init__(self, session: Session, path: str, *, patience: float, key: str = "") -> None:
        self._session = session
        self._path = path
        self._patience = patience  # seconds without a driver until the session is not kept any more
        self._key = key  # by which a driver knows the session that it made
        self._lock = threading.Lock()
        self._driver: Driver | None = None  # that is connected; guarded by _lock
        self._shipped: dict[str, str] = {}  # digest of a program: its name among Spark's files; guarded by _ship
        # Clusters of one session take turns to give it the same file.
        self._ship: threading.Lock = vars(session.spark).setdefault("_tfcluster_ship", threading.Lock())
        self._over = threading.Event()

    def run(self) -> None:
        """Serves the driver, and the one that takes over from it, until the end."""
        watcher = threading.Thread(target=self._watch, name="tfcluster-spark-watch", daemon=True)
        watcher.start()
        alone_since = time.monotonic()
        while not self._over.is_set():
            conn = self._dial()
            if conn is None:
                if time.monotonic() - alone_since > self._patience:
                    break
                self._over.wait(_DIAL[0] if time.monotonic() - alone_since < 3 else _DIAL[1])
                continue
            with contextlib.closing(conn):
                self._serve(conn)
            alone_since = time.monotonic()
        self._over.set()

    def lends(self, spark: Any) -> bool:
        """Whether a driver that comes gets this very session."""
        return self._session.spark is spark and not self._over.is_set()

    def retire(self) -> None:
        """Looks for no other driver any more."""
        self._over.set()

    def end(self) -> None:
        """The session is over, or the process that holds it: tells the driver."""
        with self._lock:
            driver = self._driver
        if driver is not None:
            driver.say({"event": "ended", "why": self._session.ended() or "its session was stopped"})
        self._over.set()
        if driver is not None:
            driver.hang_up()

    def _watch(self) -> None:
        while not self._over.wait(_POLL):
            if self._session.ended():
                self.end()

    def _dial(self) -> socket.socket | None:
        conn = socket.socket(socket.AF_UNIX)
        try:
            conn.connect(self._path)
        except OSError:
            conn.close()
            return None
        return conn

    def _serve(self, conn: socket.socket) -> None:
        # A driver that was stopped must not keep the notebook from its end.
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND, 0))
        driver = Driver(conn)
        with self._lock:
            self._driver = driver
        try:
            try:
                told = self._session.describe()
            except Exception as e:  # it is stopped meanwhile
                driver.say({"event": "ended", "why": self._session.ended() or self._session.words(e)})
                self._over.set()
                return
            driver.say({"event": "hello", "key": self._key, **told})
            with conn.makefile("rb") as lines:
                for line in lines:
                    call = json.loads(line)
                    if call.get("op") == "launch":  # registered in order: a cancel may overtake it in another thread
                        driver.launch(call["id"])
                    threading.Thread(
                        target=self._answer, args=(driver, call), name="tfcluster-spark-call", daemon=True
                    ).start()
        except (OSError, ValueError):
            pass  # the driver is gone; another may come
        finally:
            with self._lock:
                self._driver = None
            for group in driver.gone():
                self._session.cancel(group)

    def _answer(self, driver: Driver, call: Mapping[str, Any]) -> None:
        reply: dict[str, Any] = {"id": call["id"]}
        try:
            method: Callable[..., Any] = getattr(self, "do_" + call["op"])
            reply["value"] = method(driver, call["id"], **(call.get("args") or {}))
        except BaseException as e:
            reply["error"] = self._session.words(e)
        driver.over(call["id"])
        driver.say(reply)

    # What a driver may ask. The first parameters are the driver and its call's number.

    def do_launch(
        self,
        driver: Driver,
        call: int,
        agents: list[dict[str, Any]],
        program: str,
        coordinator: str,
        name: str,
        identity: str,
        python: str,
        hold: bool,
        seconds: float,
    ) -> list[dict[str, Any]]:
        """Starts agents, each in a slot of its own, once Spark has as many."""
        launch = driver.launch(call)
        launch.name(name, identity)
        brought: concurrent.futures.Future[dict[str, str]] = concurrent.futures.Future()
        # A pool's thread would hold the interpreter's end for as long as Spark takes the file.
        threading.Thread(
            target=_fulfil, args=(brought, self._bring, program), name="tfcluster-spark-bring", daemon=True
        ).start()
        self._slots(driver, launch, agents, seconds)
        launch.holds = hold
        order: spark_task.Order = {
            "agents": agents,
            "coordinator": coordinator,
            "hold": hold,
            "python": python,
            "machine": platform.machine(),
            "barrier": True,
            "identity": identity,
            "slots": self._session.slots_each(),
            **brought.result(),
        }
        stage = f"tfcluster {name}: start {len(agents)} {'agent' if len(agents) == 1 else 'agents'}"
        done = threading.Event()
        waiting = threading.Thread(target=self._waiting, args=(driver, launch, agents, done), daemon=True)
        waiting.start()
        try:
            said: list[dict[str, Any]] = []
            for again in range(_PLACE + 1):
                if self._given_up(launch):
                    raise RuntimeError("given up")
                order["slots"] = order["slots"] if again < _PLACE else 0
                told = self._session.launch(order, launch.group, stage)
                said += [s for s in told if not s.get("full")]
                full = {s["executor"] for s in told if s.get("full")}
                order["agents"] = [a for a in agents if a["executor"] in full]
                if not full:
                    break
            return said
        finally:
            done.set()
            waiting.join()

    def do_cancel(self, driver: Driver, call: int, launch: int) -> None:
        """Gives a launch up. One that has ended needs nothing."""
        canceled = driver.registered(launch)
        if canceled is None:
            return
        canceled.give_up()
        if canceled.group:
            self._session.cancel(canceled.group)

    def do_share(self, driver: Driver, call: int) -> str:
        """Where Spark Connect serves the session of our own."""
        with self._ship:
            return self._session.share()

    def do_stop(self, driver: Driver, call: int) -> None:
        """The cluster is over; a session of our own ends with it."""
        self._over.set()

    def _bring(self, program: str) -> dict[str, str]:
        """Gives the program to Spark, once a session."""
        import hashlib

        with open(program, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        with self._ship:
            name = self._shipped.get(digest)
            if name is None:
                name = f"tfcluster-{digest[:16]}"
                self._session.add_file(program, name)
                self._shipped[digest] = name
        return {"program": name, "digest": digest}

    def _slots(self, driver: Driver, launch: Launch, agents: list[dict[str, Any]], seconds: float) -> None:
        """Waits until Spark has as many slots as agents are to be started, saying what it has."""
        until = time.monotonic() + seconds
        said = ""
        while not self._given_up(launch):
            have, words = self._session.slots(len(agents), launch.group)
            have = max(have, 0)
            if have >= len(agents):
                return
            if words != said:
                said = words
                _pending(driver, agents[have:], words)
                _pending(driver, agents[:have], "waits for the others")
            if time.monotonic() > until:
                raise RuntimeError(words)
            self._over.wait(_POLL)
        raise RuntimeError("given up")

    def _given_up(self, launch: Launch) -> bool:
        return self._over.is_set() or launch.given_up()

    def _waiting(self, driver: Driver, launch: Launch, agents: list[dict[str, Any]], done: threading.Event) -> None:
        """Says why a stage that was submitted does not begin, and ends it when nobody wants it any more."""
        said = ""
        while not done.wait(2):
            if self._given_up(launch):
                self._session.cancel(launch.group)  # again: Spark forgets a cancel that comes before the job
                continue
            words = self._session.busy()
            if words != said:
                _pending(driver, agents, words)
            said = words


def _pending(driver: Driver, agents: list[dict[str, Any]], why: str) -> None:
    driver.say({"event": "pending", "executors": [a["executor"] for a in agents], "why": why})


def _fulfil(future: concurrent.futures.Future[Any], do: Callable[..., Any], *args: Any) -> None:
    try:
        future.set_result(do(*args))
    except BaseException as e:
        future.set_exception(e)


def main() -> None:
    """A session of our own, until its cluster is over."""
    asked = json.load(sys.stdin)
    session = Session.make(asked["conf"], asked["folder"])
    host = Host(session, asked["socket"], patience=asked["patience"], key=asked["key"])
    try:
        host.run()
    finally:
        session.stop()


_borrowed: dict[str, Host] = {}  # hosts on the notebook's sessions by their sockets, ended at exit


_PATIENCE = 3600.0  # seconds that a session of the notebook's looks for another driver


def borrow(spark: Any, path: str) -> None:
    """Serves a driver on a session of the notebook's from a thread of its own, unless one is looking for it already."""
    import atexit

    old = _borrowed.get(path)
    if old is not None and old.lends(spark):
        return
    if old is not None:
        old.retire()
    if not _borrowed:
        atexit.register(_end)
    _borrowed[path] = Host(Session(spark), path, patience=_PATIENCE)
    threading.Thread(target=_borrowed[path].run, name="tfcluster-spark", daemon=True).start()


def _end() -> None:
    while _borrowed:
        _borrowed.popitem()[1].end()


if __name__ == "__main__":
    os.environ.pop("TFCLUSTER_GATE", None)
    main()
