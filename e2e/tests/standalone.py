"""What tests need for Spark: whether it is installed, sessions, and a standalone cluster that ends with the test."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from conftest import CHEAP, DEADLINE, wait_for

NEEDS_SPARK = [
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="missing: pyspark"),
    pytest.mark.skipif(not (os.environ.get("JAVA_HOME") or shutil.which("java")), reason="missing: Java"),
]
SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").getOrCreate()
"""


def needs_spark(test: Callable[..., None]) -> Callable[..., None]:
    """Skip a test where Spark is missing."""
    for mark in NEEDS_SPARK:
        test = mark(test)
    return test


def pyspark_home() -> pathlib.Path:
    """Return the folder of the Spark that the package pyspark has."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return pathlib.Path(spec.origin).parent


@contextlib.contextmanager
def any_standalone(env: dict[str, str], folder: pathlib.Path) -> Iterator[str]:
    """Yield the URL of a master with two cores and more: of TFCLUSTER_TEST_SPARK_MASTER, or of the test's own.

    Its executors have the variables in conftest.OWN. A session must limit its cores by spark.cores.max, and no
    test may end a daemon.
    """
    if url := os.environ.get("TFCLUSTER_TEST_SPARK_MASTER"):
        yield url
        return
    with standalone(env, folder, "--cores", "2", "--memory", "2g") as url:
        yield url


@contextlib.contextmanager
def standalone(env: dict[str, str], folder: pathlib.Path, *worker: str, workers: int = 1) -> Iterator[str]:
    """Start a master and workers with these words, each a host, and yield the master's URL once all are registered."""
    daemons = []

    def start(name: str, what: str, host: str, *words: str) -> pathlib.Path:
        log = folder / f"{name}.log"
        command = [str(pyspark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}"]
        common = ["--host", host, "--webui-port", "0"]
        daemon = {**env, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": CHEAP}
        with log.open("wb") as out:
            daemons.append(
                subprocess.Popen(
                    [*command, *common, *words], env=daemon, cwd=folder, stdout=out, stderr=out, start_new_session=True
                )
            )
        return log

    try:
        log = start("master", "master.Master", "127.0.0.1", "--port", "0")
        started = re.compile(r"Starting Spark master at (spark://\S+)")
        wait_for("the master", lambda: started.search(log.read_text()) is not None)
        url = started.search(log.read_text())[1]
        for n in range(workers):
            place = ["--work-dir", str(folder / f"work-{n}")]
            start(f"worker-{n}", "worker.Worker", f"127.0.0.{1 + n}", *place, *worker, url)
        wait_for("the workers' registration", lambda: log.read_text().count("Registering worker") == workers)
        yield url
    finally:
        for daemon in reversed(daemons):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGTERM)
            daemon.wait(DEADLINE)
