"""How the agents' program is run on a Spark: with no Python between, and what is said of one that cannot run."""

from __future__ import annotations

import os
import pathlib
import platform
import socket
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tfcluster import spark_calls, spark_host, spark_session, spark_task

pyspark = pytest.importorskip("pyspark", reason="missing: pyspark")

# The head of an ELF file for a machine that nobody has.
FOREIGN = b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (0xFFFE).to_bytes(2, "little") + bytes(64)
OLD = b'#!/bin/sh\necho "$0: version GLIBC_2.99 not found" >&2\nexit 1\n'
# It says what it was asked, and who asked.
ECHO = b"""#!/bin/sh
read -r asked
parent=$(basename "$(readlink /proc/$PPID/exe)")
echo "{\\"executor\\": \\"$1\\", \\"attempt\\": 1, \\"pid\\": 1, \\"parent\\": \\"$parent\\", \\"asked\\": $asked}"
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[spark_session.Session]:
    """A real Spark, whose one executor is its driver."""
    folder = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    made = spark_session.Session.make(conf, str(folder))
    yield made
    made.stop()
    os.environ.pop("PYSPARK_SUBMIT_ARGS", None)


def order(session: spark_session.Session, folder: pathlib.Path, name: str, program: bytes) -> spark_task.Order:
    """An order for two agents of this program."""
    path = folder / name
    path.write_bytes(program)
    session.add_file(str(path), name)
    agents = [{"executor": f"worker-{i}", "attempt": 1, "config": {"key": "é"}} for i in range(2)]
    return {
        "agents": agents,
        "program": name,
        "digest": "",
        "coordinator": "127.0.0.1:1",
        "hold": False,
        "gpus": 0,
        "python": "",
        "machine": "riscv64",
        "barrier": True,
        "identity": "c",
        "slots": 0,
    }


def test_piped(session: spark_session.Session, tmp_path: pathlib.Path) -> None:
    """Spark's JVM runs the program itself, once for each agent, and gives it the order."""
    said: list[dict[str, Any]] = session.launch(order(session, tmp_path, "echo-1", ECHO), "group", "stage")
    assert [s["parent"] for s in said] == ["java", "java"]
    assert [s["asked"]["executor"] for s in said] == ["worker-0", "worker-1"]
    assert said[0]["asked"]["config"] == {"key": "é"}
    assert said[0]["asked"]["python"] == session._sc.pythonExec


@pytest.mark.parametrize(
    ("name", "program", "words"),
    [
        ("foreign-1", FOREIGN, f"this executor is {platform.machine()}, the driver riscv64"),
        ("old-1", OLD, "version GLIBC_2.99 not found; this executor has "),
    ],
)
def test_cannot_run(
    session: spark_session.Session, tmp_path: pathlib.Path, name: str, program: bytes, words: str
) -> None:
    """A program for another machine, or for a newer C library, is an answer that says so."""
    said = session.launch(order(session, tmp_path, name, program), "group", "stage")
    assert [words in s["error"] for s in said] == [True, True], said
    assert [s["executor"] for s in said] == ["worker-0", "worker-1"]


class Executors:
    """Spark with one executor, whose slot another agent has; a second executor comes with a later stage."""

    spark = types.SimpleNamespace()

    def __init__(self, comes: int, lacks: bool) -> None:
        self.comes, self.lacks = comes, lacks
        self.asked: list[tuple[int, list[str]]] = []
        self.launch = spark_calls.Launch()
        self.first: Callable[[], None] = lambda: None  # called in the first stage
        self.later: Callable[[], None] = lambda: None  # called in each stage after the first

    def stage(self, order: spark_task.Order, group: str, stage: str) -> list[dict[str, Any]]:
        executors = [a["executor"] for a in order["agents"]]
        self.asked.append((order["slots"], executors))
        (self.first if len(self.asked) == 1 else self.later)()
        free = 1 if len(self.asked) in (1, self.comes) or not order["slots"] else 0
        return [
            {"executor": e, "pid": 1} if n < free else {"executor": e, "full": True} for n, e in enumerate(executors)
        ]

    def lacks_executor(self) -> bool:
        return self.lacks

    def words(self, e: BaseException) -> str:
        return str(e)

    def place(self, folder: pathlib.Path) -> list[dict[str, Any]]:
        """Start two agents on this Spark."""
        session = types.SimpleNamespace(
            launch=self.stage, lacks_executor=self.lacks_executor, words=self.words, spark=self.spark
        )
        host = spark_host.Host(session, str(folder / "driver.sock"), patience=1)  # type: ignore[arg-type]
        agents = [{"executor": "0", "attempt": 1}, {"executor": "1", "attempt": 1}]
        return host._place(self.launch, {"agents": agents, "slots": 1}, "stage")  # type: ignore[typeddict-item]


FIRST = (1, ["0", "1"])


@pytest.mark.parametrize(
    ("share", "lacks", "comes", "want"),
    [
        ((60.0, 0.0), True, 3, [FIRST, (1, ["1"]), (1, ["1"])]),
        ((0.0, 60.0), False, 3, [FIRST, (1, ["1"]), (1, ["1"])]),
        ((0.0, 60.0), True, 9, [FIRST, (0, ["1"])]),
        ((0.05, 60.0), True, 99, [FIRST, (1, ["1"]), (0, ["1"])]),
    ],
    ids=["waits", "waits a little, as Spark lacks none", "shares at once", "waits, then shares"],
)
def test_agents_that_find_no_free_slot(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    share: tuple[float, float],
    lacks: bool,
    comes: int,
    want: list[tuple[int, list[str]]],
) -> None:
    """They wait for another executor, and share one after that time; agents that were started are not again."""
    monkeypatch.setattr(spark_host, "_SHARE", share)
    monkeypatch.setattr(spark_host, "_AGAIN", (0.04, 0.04))
    executors = Executors(comes, lacks)
    executors.first = lambda: time.sleep(0.1)  # Spark had no free slot for a while, which does not count
    assert [s["executor"] for s in executors.place(tmp_path)] == ["0", "1"]
    asked = executors.asked if comes < 99 else [*executors.asked[:2], executors.asked[-1]]  # the pauses may take longer
    assert asked == want
    assert bool(executors.launch.waits) == bool(want[-1][0])


def test_a_later_stage_fails(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents that were started before are reported, the others with the reason; unless the launch is cancelled."""
    monkeypatch.setattr(spark_host, "_AGAIN", (0.01, 0.01))

    def fail() -> None:
        raise RuntimeError("Spark is gone")

    executors = Executors(99, lacks=True)
    executors.later = fail
    assert executors.place(tmp_path) == [
        {"executor": "0", "pid": 1},
        {"executor": "1", "attempt": 1, "error": "Spark is gone"},
    ]
    executors = Executors(99, lacks=True)
    executors.first = fail
    with pytest.raises(RuntimeError, match="Spark is gone"):
        executors.place(tmp_path)


@pytest.mark.parametrize("gone", [False, True], ids=["cancelled", "driver gone"])
def test_a_launch_that_waits_is_ended(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """It starts no other stage, so that it takes no slot from the launches of the next driver."""
    monkeypatch.setattr(spark_host, "_AGAIN", (0.01, 0.01))
    executors = Executors(99, lacks=True)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        driver = spark_calls.Driver(ours)
        executors.launch = driver.launch(1)
        executors.launch.holds = gone  # its stage would run while its agents live

        def end() -> None:
            if gone:
                driver.gone()
            else:
                executors.launch.give_up()

        executors.later = end
        with pytest.raises(RuntimeError, match="does not need these agents any more"):
            executors.place(tmp_path)
    assert len(executors.asked) == 2


def test_failures_of_earlier_stages(session: spark_session.Session, tmp_path: pathlib.Path) -> None:
    """What failed in an earlier stage of a launch is no reason to refuse the agents of a later one."""
    bad = order(session, tmp_path, "fails-1", b"#!/bin/sh\nexit 3\n")
    assert all("does not run here (code 3)" in s["error"] for s in session.launch(bad, "again", "stage"))
    said = session.launch(order(session, tmp_path, "echo-2", ECHO), "again", "stage")
    assert [s.get("error") for s in said] == [None, None]
