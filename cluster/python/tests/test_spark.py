"""What the side of Spark does without Spark: settings as files, words of errors, slots."""

from __future__ import annotations

import pathlib
import socket
import tempfile
import threading
import time
import types
from collections.abc import Iterator

import pytest

from tfcluster import spark_host, spark_session, spark_task


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
    assert spark_session._escape(value) == written


def test_defaults(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """spark-defaults.conf stands below our own settings: a properties file would hide it."""
    (tmp_path / "spark-defaults.conf").write_text("# no\nspark.a b c\nspark.d=e\n\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert spark_session._defaults() == {"spark.a": "b c", "spark.d": "e"}


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
    said = spark_session.Session.words(None, ValueError(text))  # type: ignore[arg-type]
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
        words = staticmethod(str)

        def slots_each(self) -> int:
            return 1

        def slots(self, wanted: int, group: str) -> tuple[int, str]:
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
            assert group == "tfcluster-c-1"
            canceled.set()

    host = spark_host.Host(Session(), str(short / "no-driver"), patience=1)  # type: ignore[arg-type]
    agents = [{"executor": "0", "attempt": 0}]
    args = {"agents": agents, "program": str(program), "coordinator": "", "name": "c", "python": "", "hold": False}

    def launch() -> None:
        host._answer({"id": 1, "op": "launch", "args": {**args, "seconds": 60}})
        ended.set()

    threading.Thread(target=launch, daemon=True).start()
    assert begun.wait(60)
    host.do_stop(2)
    assert ended.wait(60)


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
            telling = threading.Thread(target=host._pending, args=([], "x" * 10_000_000), daemon=True)
            telling.start()
            telling.join(60)
            assert not telling.is_alive()
        host.retire()
    serving.join(60)
    assert not serving.is_alive()
