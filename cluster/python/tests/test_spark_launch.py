"""How the agents' program is run on a Spark: with no Python between, and what is said of one that cannot run."""

from __future__ import annotations

import os
import pathlib
import platform
import types
from collections.abc import Iterator
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
    """Spark with one executor, whose slot another agent has; a second executor comes with the third stage."""

    spark = types.SimpleNamespace()

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[str]]] = []

    def launch(self, order: spark_task.Order, group: str, stage: str) -> list[dict[str, Any]]:
        executors = [a["executor"] for a in order["agents"]]
        self.asked.append((order["slots"], executors))
        free = 1 if len(self.asked) == 1 or len(self.asked) > 2 or not order["slots"] else 0
        return [
            {"executor": e, "pid": 1} if n < free else {"executor": e, "full": True} for n, e in enumerate(executors)
        ]


@pytest.mark.parametrize(
    ("patience", "want"),
    [
        (60.0, [(1, ["0", "1"]), (1, ["1"]), (1, ["1"])]),
        (-1.0, [(1, ["0", "1"]), (0, ["1"])]),
    ],
    ids=["waits", "shares"],
)
def test_agents_that_find_no_free_slot(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, patience: float, want: list[tuple[int, list[str]]]
) -> None:
    """They wait for another executor, and share one after that time; agents that were started are not again."""
    monkeypatch.setattr(spark_host, "_SHARE", patience)
    monkeypatch.setattr(spark_host, "_AGAIN", (0.01, 0.01))
    executors, launch = Executors(), spark_calls.Launch()
    host = spark_host.Host(executors, str(tmp_path / "driver.sock"), patience=1)  # type: ignore[arg-type]
    told = host._place(launch, {"agents": [{"executor": "0"}, {"executor": "1"}], "slots": 1}, "stage")
    assert [s["executor"] for s in told] == ["0", "1"]
    assert executors.asked == want
    assert bool(launch.waits) == (patience > 0)
