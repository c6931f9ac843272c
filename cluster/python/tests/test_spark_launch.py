"""How the agents' program is run on a Spark: with no Python between, and what is said of one that cannot run."""

from __future__ import annotations

import os
import pathlib
import platform
import socket
import threading
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
        "hosts": ["", ""],
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


class Clock(threading.Event):
    """The time of a launch, which passes only while it waits, and in Spark's stages."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return False


class Executors:
    """Spark with two executors, one of which has an agent. The other one is lost until `back`, its slot is found from
    `found` on; the first stage takes `first` seconds."""

    spark = types.SimpleNamespace()
    connect = True

    def __init__(self, back: float = 1000.0, found: float = 1000.0, first: float = 0.1) -> None:
        self.back, self.found, self.first = back, found, first
        self.clock = Clock()
        self.asked: list[tuple[float, int, list[str]]] = []  # seconds from the start, slots, executors
        self.call = spark_calls.Launch()
        self.later: Callable[[], None] = lambda: None  # called in each stage after the first

    def passed(self) -> float:
        return self.clock.now - 100

    def launch(self, order: spark_task.Order, group: str, stage: str) -> list[dict[str, Any]]:
        names = [a["executor"] for a in order["agents"]]
        self.asked.append((self.passed(), order["slots"], names))
        if len(self.asked) > 1:
            self.later()
        self.clock.now += self.first if len(self.asked) == 1 else 0.1
        free = 2 if not order["slots"] else 1 if len(self.asked) == 1 or self.passed() >= self.found else 0
        return [{"executor": e, "pid": 1} if n < free else {"executor": e, "full": True} for n, e in enumerate(names)]

    def lacks_executor(self) -> bool:
        return self.passed() < self.back

    def ended(self) -> str:
        return ""

    def words(self, e: BaseException) -> str:
        return str(e)

    def place(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
        """Start two agents on this Spark."""
        monkeypatch.setattr(spark_host, "time", types.SimpleNamespace(monotonic=lambda: self.clock.now))
        host = spark_host.Host(self, str(folder / "driver.sock"), patience=1)  # type: ignore[arg-type]
        host._over = self.clock
        agents = [{"executor": "0", "attempt": 1}, {"executor": "1", "attempt": 1}]
        return host._place(self.call, {"agents": agents, "slots": 1}, "stage")  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("executors", "shares", "until"),
    [
        (Executors(back=8, found=8), False, (8, 11)),
        (Executors(back=8, found=11), False, (11, 12)),
        (Executors(), True, (30, 33)),
        (Executors(back=8), True, (12, 15)),
        (Executors(back=0, found=2), False, (2, 3)),
        (Executors(back=0), True, (4, 5)),
        (Executors(first=60, back=70, found=70), False, (70, 73)),
    ],
    ids=[
        "another executor comes",
        "and Spark chooses it late",
        "none comes",
        "one comes, without a slot",
        "none was lost",
        "none was lost, and there is no slot",
        "Spark had no free slot at first, which does not count",
    ],
)
def test_agents_that_find_no_free_slot(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    executors: Executors,
    shares: bool,
    until: tuple[float, float],
) -> None:
    """They wait for another executor, and share one after that time; agents that were started are not again."""
    assert [s["executor"] for s in executors.place(tmp_path, monkeypatch)] == ["0", "1"]
    at, slots, names = executors.asked[-1]
    assert (slots == 0, names) == (shares, ["1"])
    assert until[0] <= at + 0.1 <= until[1], executors.asked
    assert all(slots == 1 for _, slots, _ in executors.asked[:-1])
    assert executors.asked[0][2] == ["0", "1"]
    assert bool(executors.call.waits) != shares


def test_a_later_stage_fails(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents that were started before are reported, the others with the reason."""
    executors = Executors()

    def fail() -> None:
        raise RuntimeError("Spark is gone")

    executors.later = fail
    assert executors.place(tmp_path, monkeypatch) == [
        {"executor": "0", "pid": 1},
        {"executor": "1", "attempt": 1, "error": "Spark is gone"},
    ]


@pytest.mark.parametrize("gone", [False, True], ids=["cancelled", "driver gone"])
def test_a_launch_that_waits_is_ended(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """It starts no other stage, so that it takes no slot from the launches of the next driver."""
    executors = Executors()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        driver = spark_calls.Driver(ours)
        executors.call = driver.launch(1)
        executors.call.holds = gone  # its stage would run while its agents live

        def end() -> None:
            if gone:
                driver.gone()
            else:
                executors.call.give_up()

        executors.later = end
        with pytest.raises(RuntimeError, match="does not need these agents any more"):
            executors.place(tmp_path, monkeypatch)
    assert len(executors.asked) == 2


def test_failures_of_earlier_stages(session: spark_session.Session, tmp_path: pathlib.Path) -> None:
    """What failed in an earlier stage of a launch is no reason to refuse the agents of a later one."""
    bad = order(session, tmp_path, "fails-1", b"#!/bin/sh\nexit 3\n")
    assert all("does not run here (code 3)" in s["error"] for s in session.launch(bad, "again", "stage"))
    said = session.launch(order(session, tmp_path, "echo-2", ECHO), "again", "stage")
    assert [s.get("error") for s in said] == [None, None]
