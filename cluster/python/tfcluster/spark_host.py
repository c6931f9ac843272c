"""The host of a Spark session, which starts agents on executors for a driver.

A Host serves one cluster over one unix socket, JSON lines. It runs in the notebook's process with the
notebook's session, or alone (`python -m tfcluster.spark_host`) with a session that it makes and ends.
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

from tfcluster import spark_errors, spark_placement, spark_task
from tfcluster.spark_calls import Driver, Launch
from tfcluster.spark_session import Session

_POLL = 0.2  # interval of checks of Spark's executors, in seconds
_DIAL = 0.01, 0.2  # seconds between two attempts to connect to the driver: first and later
_SEND = 5  # timeout of a message to a driver, in seconds
_GIVEN_UP = "the cluster does not need these agents any more: it was released, or asked again for others"
# Seconds to wait for an executor with a free slot before agents share one: while Spark lacks an executor, and
# once it has all. Spark chooses among executors with a free core in any order, so that several attempts are
# needed.
_SHARE = 30.0, 4.0
_AGAIN = 0.1, 2.0  # seconds between two attempts to find one: the first pause, which doubles, and the longest
_STARTS = "Spark starts the stage when it has free slots"
# What a launch waits for while Spark lacks an executor, and once it has all.
_WAITS = (
    "waits for another executor of Spark, because each one with a free core has a task of this cluster; "
    "after {:g} s it shares one",
    "Spark chose an executor that has a task of this cluster; it is asked again, and after {:g} s the task shares one",
)


class Host:
    """The execution of a driver's calls on a session. run() returns at the cluster's or the session's end."""

    def __init__(self, session: Session, path: str, *, patience: float, key: str = "") -> None:
        self._session = session
        self._path = path
        self._patience = patience  # seconds without a driver until the session is ended
        self._key = key  # identifies the session to the driver that made it
        self._lock = threading.Lock()
        self._driver: Driver | None = None  # the connected driver; guarded by _lock
        self._shipped: dict[str, str] = {}  # names of programs in Spark's files, by digest; guarded by _ship
        # Clusters of one session do not add the same file at the same time.
        self._ship: threading.Lock = vars(session.spark).setdefault("_tfcluster_ship", threading.Lock())
        self._over = threading.Event()
        self._places = spark_placement.Places()
        self._lost = ""  # why launches wait: a host was lost, and Spark does not replace its executors; "": nothing

    def run(self) -> None:
        """Serves the driver, and each driver that takes over, until the end."""
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
        """Reports whether this host still serves drivers with this session."""
        return self._session.spark is spark and not self._over.is_set()

    def retire(self) -> None:
        """Stops looking for other drivers."""
        self._over.set()

    def end(self, why: str = "") -> None:
        """Reports to the driver that the session or its process ends."""
        with self._lock:
            driver = self._driver
        if driver is not None:
            driver.say({"event": "ended", "why": why or self._session.ended() or "its session was stopped"})
        self._over.set()
        if driver is not None:
            driver.hang_up()

    def _watch(self) -> None:
        while not self._over.wait(_POLL):
            why = self._session.ended()
            if why:
                self.end(why)

    def _dial(self) -> socket.socket | None:
        conn = socket.socket(socket.AF_UNIX)
        try:
            conn.connect(self._path)
        except OSError:
            conn.close()
            return None
        return conn

    def _serve(self, conn: socket.socket) -> None:
        # A driver that is stopped must not block the notebook's end.
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND, 0))
        driver = Driver(conn)
        with self._lock:
            self._driver = driver
        try:
            try:
                told = self._session.describe()
            except Exception as e:  # the session was stopped in the meantime
                driver.say({"event": "ended", "why": self._session.ended() or spark_errors.words(e)})
                self._over.set()
                return
            driver.say({"event": "hello", "key": self._key, **told})
            with conn.makefile("rb") as lines:
                for line in lines:
                    call = json.loads(line)
                    if call.get("op") == "launch":  # here: another thread may handle its cancel first
                        driver.launch(call["id"])
                    threading.Thread(
                        target=self._answer, args=(driver, call), name="tfcluster-spark-call", daemon=True
                    ).start()
        except (OSError, ValueError):
            pass  # the driver is lost; another may connect
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
            # While Spark stops, pyspark's objects and SparkEnv become None one after the other.
            why = self._session.ended()
            if why:
                self.end(why)  # first: a driver that made the session makes another one for its next launch
            reply["error"] = why or spark_errors.words(e)
        driver.over(call["id"])
        driver.say(reply)

    # Calls of a driver. The first parameters are the driver and the call's number.

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
        gpus: int,
        seconds: float,
        pack: bool = False,
    ) -> list[dict[str, Any]]:
        """Starts agents, each in its own slot, once Spark has enough slots."""
        launch = driver.launch(call)
        launch.name(name, identity)
        brought: concurrent.futures.Future[dict[str, str]] = concurrent.futures.Future()
        # A thread of a pool would delay the interpreter's end until Spark has the file.
        threading.Thread(
            target=_fulfil, args=(brought, self._bring, program), name="tfcluster-spark-bring", daemon=True
        ).start()
        self._slots(driver, launch, agents, gpus, seconds)
        launch.holds = hold
        order: spark_task.Order = {
            "agents": agents,
            "coordinator": coordinator,
            "hold": hold,
            "gpus": gpus,
            "python": python,
            "machine": platform.machine(),
            "barrier": True,
            "identity": identity,
            "slots": self._session.slots_each(gpus),
            "pack": pack,
            **brought.result(),
        }
        stage = f"tfcluster {name}: start {len(agents)} {'agent' if len(agents) == 1 else 'agents'}"
        done = threading.Event()
        waiting = threading.Thread(target=self._waiting, args=(driver, launch, agents, done), daemon=True)
        waiting.start()
        try:
            said = self._place(launch, order, stage)
            self._places.are({s["executor"]: s["host"] for s in said if s.get("host")})
            self._lost = ""
            return said
        finally:
            done.set()
            waiting.join()

    def _place(self, launch: Launch, order: spark_task.Order, stage: str) -> list[dict[str, Any]]:
        """Starts the agents of an order, each in a slot that no agent of the cluster has.

        The cores of executors with agents are free, too, so that Spark may choose such an executor. An
        executor that replaces a lost one comes after seconds. If none comes, agents share an executor.
        """
        said: list[dict[str, Any]] = []
        lacked = has_all = 0.0  # since when Spark lacks an executor, or has all
        pause = _AGAIN[0]
        while True:
            if self._given_up(launch) or launch.orphaned:
                raise RuntimeError(_GIVEN_UP)
            try:
                if self._places.prefer(self._session, order, launch, lambda: self._given_up(launch), self._over.wait):
                    raise RuntimeError(_GIVEN_UP)
                told = self._session.launch(order, launch.group, stage)
            except Exception as e:
                if not said or self._given_up(launch) or self._session.ended():
                    raise
                # The agents that were started before run, so they are reported.
                return said + [{**_named(a), "error": spark_errors.words(e)} for a in order["agents"]]
            said += [s for s in told if not s.get("full")]
            full = {s["executor"] for s in told if s.get("full")}
            if not full:
                return said
            order["agents"] = [a for a in order["agents"] if a["executor"] in full]
            now = time.monotonic()
            if self._session.lacks_executor():
                lacked, has_all = lacked or now, 0.0
                since, how, pause = lacked, 0, min(2 * pause, _AGAIN[1])
            else:
                has_all = has_all or now
                since, how, pause = has_all, 1, _AGAIN[0]
            if now >= since + _SHARE[how]:
                order["slots"], launch.waits = 0, ""
                continue
            launch.waits = _WAITS[how].format(_SHARE[how])
            self._over.wait(pause)

    def do_avoid(self, driver: Driver, call: int, host: str) -> str:
        """Has Spark replace its executors on a host that does not answer; returns what to wait for, if it cannot."""
        self._lost = self._session.avoid(host)
        return self._lost

    def do_hosts(self, driver: Driver, call: int, host: str) -> list[str]:
        """Returns the hosts other than the given one on which Spark has executors."""
        return self._session.other_hosts(host)

    def do_cancel(self, driver: Driver, call: int, launch: int) -> None:
        """Cancels a launch, unless it has ended."""
        canceled = driver.registered(launch)
        if canceled is None:
            return
        canceled.give_up()
        if canceled.group:
            self._session.cancel(canceled.group)

    def do_share(self, driver: Driver, call: int) -> str:
        """Returns the URL of Spark Connect for the session."""
        with self._ship:
            return self._session.share()

    def do_stop(self, driver: Driver, call: int) -> None:
        """Ends the cluster, and a session that this process made."""
        self._over.set()

    def _bring(self, program: str) -> dict[str, str]:
        """Adds the program to Spark's files, once per session; returns its name there and its digest."""
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

    def _slots(self, driver: Driver, launch: Launch, agents: list[dict[str, Any]], gpus: int, seconds: float) -> None:
        """Waits until Spark has enough slots for the agents, and reports its slots to the driver."""
        until = time.monotonic() + seconds
        said = ""
        while not self._given_up(launch):
            have, words = self._session.slots(len(agents), launch.group, gpus)
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
        raise RuntimeError(_GIVEN_UP)

    def _given_up(self, launch: Launch) -> bool:
        return self._over.is_set() or launch.given_up()

    def _waiting(self, driver: Driver, launch: Launch, agents: list[dict[str, Any]], done: threading.Event) -> None:
        """Reports why a submitted stage does not begin, and cancels it if the launch is cancelled."""
        said = ""
        while not done.wait(2):
            if self._given_up(launch):
                self._session.cancel(launch.group)  # repeatedly: Spark ignores a cancel before the job begins
                continue
            try:
                words = self._session.busy() or self._lost or launch.waits or _STARTS
            except Exception:  # Spark is being stopped: the launch fails and reports the reason
                continue
            if words != said:
                _pending(driver, agents, words)
            said = words


def _named(agent: Mapping[str, Any]) -> dict[str, Any]:
    return {"executor": agent["executor"], "attempt": agent["attempt"]}


def _pending(driver: Driver, agents: list[dict[str, Any]], why: str) -> None:
    driver.say({"event": "pending", "executors": [a["executor"] for a in agents], "why": why})


def _fulfil(future: concurrent.futures.Future[Any], do: Callable[..., Any], *args: Any) -> None:
    try:
        future.set_result(do(*args))
    except BaseException as e:
        future.set_exception(e)


def main() -> None:
    """Serves a session made here, until its cluster ends."""
    asked = json.load(sys.stdin)
    session = Session.make(asked["conf"], asked["folder"])
    host = Host(session, asked["socket"], patience=asked["patience"], key=asked["key"])
    try:
        host.run()
    finally:
        session.stop()


_borrowed: dict[str, Host] = {}  # hosts on the notebook's sessions by socket, ended at exit


_PATIENCE = 3600.0  # seconds that a notebook's session waits for another driver


def borrow(spark: Any, path: str) -> None:
    """Serves a driver on the notebook's session in a thread, unless a thread already does."""
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


def borrowed(path: str) -> Any:
    """Returns the notebook's session that a driver was given last; None if this process gave it none."""
    host = _borrowed.get(path)
    return None if host is None else host._session.spark


def _end() -> None:
    while _borrowed:
        _borrowed.popitem()[1].end()


if __name__ == "__main__":
    os.environ.pop("TFCLUSTER_GATE", None)
    main()
