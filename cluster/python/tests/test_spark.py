"""What the side of Spark does without Spark: settings as files, words of errors, slots."""

from __future__ import annotations

import json
import pathlib
import socket
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tfcluster import spark_calls, spark_errors, spark_host, spark_properties, spark_task


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A temporary folder with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as path:
        monkeypatch.setattr("tempfile.tempdir", path)
        yield pathlib.Path(path)


@pytest.mark.parametrize(
    ("value", "written"),
    [("plain", "plain"), ("a\\b", "a\\\\b"), ("é", "\\u00e9"), ("𝄞", "\\ud834\\udd1e"), ("a\nb", "a\\nb")],
)
def test_properties(value: str, written: str) -> None:
    """A value is written as java.util.Properties reads it."""
    assert spark_properties.escape(value) == written


def test_defaults(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """spark-defaults.conf stands below our own settings: a properties file would hide it."""
    (tmp_path / "spark-defaults.conf").write_text("# no\nspark.a b c\nspark.d=e\n\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert spark_properties.defaults() == {"spark.a": "b c", "spark.d": "e"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x\nCaused by: java.lang.Y: one\n\tat z", "one"),
        ("Job aborted: RuntimeError: no way here\n at z", "no way here"),
        ("org.apache.X: [SPARK-24942]: Barrier execution mode does not support", "dynamicAllocation.enabled=false"),
        ("first\nsecond", "first"),
        ("", "ValueError"),
    ],
)
def test_words(text: str, words: str) -> None:
    """An error is one line that tells the reason."""
    said = spark_errors.words(ValueError(text))
    assert words in said
    assert "\n" not in said


def test_stop_ends_what_waits_for_slots(short: pathlib.Path) -> None:
    """A stage that has not begun when the cluster is over does not stay in the notebook's session."""
    program = short / "program"
    program.write_bytes(b"")
    begun, canceled, ended = threading.Event(), threading.Event(), threading.Event()

    class Session:
        """Spark, as far as a launch that gets no slot needs it."""

        spark = types.SimpleNamespace()
        connect = True
        words = staticmethod(str)

        def ended(self) -> str:
            return ""

        def slots_each(self, gpus: int) -> int:
            return 1

        def slots(self, wanted: int, group: str, gpus: int) -> tuple[int, str]:
            return wanted, ""

        def add_file(self, path: str, name: str) -> None:
            pass

        def busy(self) -> str:
            return ""

        def launch(self, order: object, group: str, stage: str) -> list[dict[str, object]]:
            begun.set()
            assert canceled.wait(60)
            raise RuntimeError("cancelled")

        def cancel(self, group: str) -> None:
            assert group.startswith("tfcluster-c-identity-")
            canceled.set()

    host = spark_host.Host(Session(), str(short / "no-driver"), patience=1)  # type: ignore[arg-type]
    ours, theirs = socket.socketpair()
    driver = spark_calls.Driver(ours)

    def launch() -> None:
        host._answer(driver, {"id": 1, "op": "launch", "args": launch_args(program)})
        ended.set()

    threading.Thread(target=launch, daemon=True).start()
    assert begun.wait(60)
    host.do_stop(driver, 2)
    assert ended.wait(60)
    ours.close()
    theirs.close()


def launch_args(program: pathlib.Path) -> dict[str, object]:
    """What a driver asks for one agent."""
    return {
        "agents": [{"executor": "0", "attempt": 0}],
        "program": str(program),
        "coordinator": "",
        "name": "c",
        "identity": "identity",
        "python": "",
        "hold": False,
        "gpus": 0,
        "seconds": 60,
    }


class Slots:
    """Spark, which has a slot only once a test gives it one; launches say their job group."""

    spark = types.SimpleNamespace()
    connect = True
    words = staticmethod(str)

    def __init__(self) -> None:
        self.free = threading.Event()
        self.asked = threading.Event()
        self.groups: list[str] = []

    def ended(self) -> str:
        return ""

    def describe(self) -> dict[str, object]:
        return {}

    def slots_each(self, gpus: int) -> int:
        return 1

    def slots(self, wanted: int, group: str, gpus: int) -> tuple[int, str]:
        self.asked.set()
        return (wanted, "") if self.free.is_set() else (0, "full")

    def add_file(self, path: str, name: str) -> None:
        pass

    def busy(self) -> str:
        return ""

    def launch(self, order: object, group: str, stage: str) -> list[dict[str, object]]:
        self.groups.append(group)
        return [{"executor": "0", "attempt": 0, "pid": 1}]

    def cancel(self, group: str) -> None:
        pass


def test_nothing_of_a_dead_driver_is_the_next_ones(short: pathlib.Path) -> None:
    """Each driver's calls count from 1: neither a cancellation nor a launch nor an answer of one that died is taken
    for the next one's."""
    program = short / "program"
    program.write_bytes(b"")
    path, session = str(short / "driver.sock"), Slots()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(60)
        listener.bind(path)
        listener.listen()
        host = spark_host.Host(session, path, patience=60)  # type: ignore[arg-type]
        serving = threading.Thread(target=host.run, daemon=True)
        serving.start()

        def connected() -> tuple[socket.socket, Callable[[], dict[str, Any]]]:
            conn, _ = listener.accept()
            conn.settimeout(60)
            lines = conn.makefile("rb")
            assert json.loads(lines.readline())["event"] == "hello"
            return conn, lambda: next(said for line in lines if "id" in (said := json.loads(line)))

        def ask(conn: socket.socket, call: int, op: str, args: Mapping[str, object]) -> None:
            conn.sendall(json.dumps({"id": call, "op": op, "args": args}).encode() + b"\n")

        first, hear = connected()
        ask(first, 1, "launch", launch_args(program))  # waits for slots
        assert session.asked.wait(60)
        ask(first, 3, "cancel", {"launch": 2})  # of a launch that it has not asked for
        assert hear() == {"id": 3, "value": None}
        first.shutdown(socket.SHUT_RDWR)  # it dies
        second, hear = connected()
        session.free.set()
        ask(second, 2, "launch", launch_args(program))
        assert hear() == {"id": 2, "value": [{"executor": "0", "attempt": 0, "pid": 1}]}
        ask(second, 1, "launch", launch_args(program))
        assert hear()["id"] == 1
        assert len(session.groups) == len(set(session.groups)) == 2  # the first driver's was given up
        host.retire()
        second.shutdown(socket.SHUT_RDWR)
        serving.join(60)
        first.close()
        second.close()


def test_launch_that_begins_after_its_driver_died(short: pathlib.Path) -> None:
    """A launch that is registered after gone() is given up: Spark is not asked for its agents."""
    program = short / "program"
    program.write_bytes(b"")
    session = Slots()
    session.free.set()
    host = spark_host.Host(session, str(short / "no-driver"), patience=1)  # type: ignore[arg-type]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        driver = spark_calls.Driver(ours)
        assert driver.gone() == []
        host._answer(driver, {"id": 1, "op": "launch", "args": launch_args(program)})
        assert json.loads(theirs.makefile("rb").readline()) == {"id": 1, "error": spark_host._GIVEN_UP}
    assert session.groups == []


def test_cancel_after_the_launch_ended(short: pathlib.Path) -> None:
    """It leaves nothing behind."""
    program = short / "program"
    program.write_bytes(b"")
    session = Slots()
    session.free.set()
    host = spark_host.Host(session, str(short / "no-driver"), patience=1)  # type: ignore[arg-type]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        driver = spark_calls.Driver(ours)
        host._answer(driver, {"id": 1, "op": "launch", "args": launch_args(program)})
        host._answer(driver, {"id": 0, "op": "cancel", "args": {"launch": 1}})
        assert driver._launches == {}
    assert len(session.groups) == 1


def test_cancel_right_behind_its_launch(short: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel counts even if its thread runs before the thread of the launch."""
    program = short / "program"
    program.write_bytes(b"")
    session, canceled = Slots(), threading.Event()
    session.free.set()
    host = spark_host.Host(session, str(short / "no-driver"), patience=1)  # type: ignore[arg-type]
    answer = host._answer

    def launch_last(driver: spark_calls.Driver, call: Mapping[str, Any]) -> None:
        if call["op"] == "launch":
            assert canceled.wait(60)
        answer(driver, call)
        if call["op"] == "cancel":
            canceled.set()

    monkeypatch.setattr(host, "_answer", launch_last)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(60)
        serving = threading.Thread(target=host._serve, args=(ours,), daemon=True)
        serving.start()
        for call in (
            {"id": 1, "op": "launch", "args": launch_args(program)},
            {"id": 0, "op": "cancel", "args": {"launch": 1}},
        ):
            theirs.sendall(json.dumps(call).encode() + b"\n")
        lines = theirs.makefile("rb")
        said = [json.loads(lines.readline()) for _ in range(3)]
        assert said[1:] == [{"id": 0, "value": None}, {"id": 1, "error": spark_host._GIVEN_UP}]
        theirs.shutdown(socket.SHUT_RDWR)
        serving.join(60)
        assert not serving.is_alive()
    assert session.groups == []


def test_a_session_that_ends_before_its_first_word(short: pathlib.Path) -> None:
    """The driver hears why, and does not wait for a session that was stopped while it was lent."""

    class Stopped(Slots):
        def ended(self) -> str:
            return "the SparkSession was stopped"

        def describe(self) -> dict[str, object]:
            raise AttributeError("'NoneType' object has no attribute 'sc'")

    host = spark_host.Host(Stopped(), str(short / "host.sock"), patience=60)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        host._serve(ours)
        said = json.loads(theirs.makefile("rb").readline())
    assert said == {"event": "ended", "why": "the SparkSession was stopped"}
    assert not host.lends(host._session.spark)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("has_slots", [False, True])
def test_a_call_that_fails_when_the_session_ends(short: pathlib.Path, has_slots: bool) -> None:
    """The driver hears of the session's end before it launches again, not of pyspark's objects that are None then."""
    program = short / "program"
    program.write_bytes(b"")
    busy = threading.Event()

    class Killed(Slots):
        def ended(self) -> str:
            return "the Spark application was ended"

        def slots(self, wanted: int, group: str, gpus: int) -> tuple[int, str]:
            if has_slots:
                return wanted, ""
            raise AttributeError("'NoneType' object has no attribute 'blockManager'")

        def busy(self) -> str:
            busy.set()
            raise AttributeError("'NoneType' object has no attribute 'sc'")

        def launch(self, order: object, group: str, stage: str) -> list[dict[str, object]]:
            assert busy.wait(60)
            raise AttributeError("'NoneType' object has no attribute 'setJobGroup'")

    host = spark_host.Host(Killed(), str(short / "host.sock"), patience=60)  # type: ignore[arg-type]
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("rb") as lines:
        driver = host._driver = spark_calls.Driver(ours)
        host._answer(driver, {"id": 1, "op": "launch", "args": launch_args(program)})
        assert [json.loads(line) for line in lines] == [{"event": "ended", "why": "the Spark application was ended"}]


def test_a_session_is_lent_once(short: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that takes over finds the host that looks for it; another session takes its place."""
    begun: list[spark_host.Host] = []
    monkeypatch.setattr(spark_host.Host, "run", lambda host: begun.append(host))
    monkeypatch.setattr(spark_host, "_borrowed", {})
    first, second = (types.SimpleNamespace(sparkContext=types.SimpleNamespace(_jsc=None)) for _ in range(2))
    socket = str(short / "host.sock")
    for spark in (first, first, second):
        spark_host.borrow(spark, socket)
    spark_host.borrow(first, str(short / "other.sock"))
    deadline = time.monotonic() + 60
    while len(begun) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(begun) == 3
    assert [host.lends(first) or host.lends(second) for host in begun].count(False) == 1
    spark_host._end()


def test_side_by_side() -> None:
    """An executor has as many slots as tasks were seen in it at once."""
    lines = ["a 1 0.0 0.2", "a 1 0.1 0.3", "a 1 0.2 0.4", "a 2 0.0 0.2", "b 1 5.0 5.2", "b 1 5.2 5.4"]
    assert spark_task.side_by_side(lines) == {("a", "1"): 2, ("a", "2"): 1, ("b", "1"): 1}


def test_a_driver_that_reads_nothing(short: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped driver holds nobody who tells it something."""
    monkeypatch.setattr(spark_host, "_SEND", 1)
    session = types.SimpleNamespace(spark=types.SimpleNamespace(), ended=lambda: "", describe=dict, words=str)
    path = str(short / "driver.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        host = spark_host.Host(session, path, patience=0.1)  # type: ignore[arg-type]
        serving = threading.Thread(target=host.run, daemon=True)
        serving.start()
        stopped, _ = listener.accept()
        with stopped:
            assert stopped.recv(1)  # of its hello: it tells this driver now
            driver = host._driver
            assert driver is not None
            telling = threading.Thread(target=driver.say, args=({"event": "x" * 10_000_000},), daemon=True)
            telling.start()
            telling.join(60)
            assert not telling.is_alive()
        host.retire()
    serving.join(60)
    assert not serving.is_alive()
