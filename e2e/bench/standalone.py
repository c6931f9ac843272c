"""A standalone Spark of the bench's own: a master and workers from pyspark's jars, on the loopback interface."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from workplace import DEADLINE, BenchError, Missing, Workplace

HOST = "127.0.0.1"
# Two executors of one core, one a worker; memory is the JVMs', not TensorFlow's.
SESSION = {"spark.executor.cores": "1", "spark.cores.max": "2", "spark.executor.memory": "1g", "spark.ui.port": "0"}


class Standalone:
    """Two workers of one core. As a context manager it is stopped at the end."""

    def __init__(self, place: Workplace) -> None:
        found = importlib.util.find_spec("pyspark")
        if found is None or not found.submodule_search_locations:
            raise Missing("pyspark is missing")
        java = os.environ.get("JAVA_HOME", "") and os.environ["JAVA_HOME"] + "/bin/java" or shutil.which("java")
        if not java:
            raise Missing("Java is missing")
        self._home = pathlib.Path(found.submodule_search_locations[0])
        self._java = java
        self._place = place
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.url = self._ui = ""

    def __enter__(self) -> Standalone:
        place = self._place
        for name in [name for name in place.env if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_"))]:
            del place.env[name]
        (jar,) = self._home.glob("jars/spark-core_*.jar")
        (place.folder / "conf").mkdir()
        defaults = "".join(f"{name} {value}\n" for name, value in SESSION.items())
        (place.folder / "conf" / "spark-defaults.conf").write_text(defaults)
        place.env |= {
            "SPARK_HOME": str(self._home),
            "SPARK_SCALA_VERSION": jar.name.removeprefix("spark-core_").partition("-")[0],
            "SPARK_CONF_DIR": str(place.folder / "conf"),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(place.folder / "local"),
            "PYSPARK_PYTHON": place.python,
        }
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        log = self._daemon("master", "org.apache.spark.deploy.master.Master")
        pattern = re.compile(r"Starting Spark master at (spark://\S+).*started service 'MasterUI' on port (\d+)", re.S)
        found = self._until("the Spark master", lambda: pattern.search(log.read_text()))
        self.url, self._ui = found[1], f"http://{HOST}:{found[2]}/json/"
        for n in range(2):
            words = ("--cores", "1", "--memory", "2G", "--work-dir", str(self._place.folder / "executors"), self.url)
            self._daemon(f"worker-{n}", "org.apache.spark.deploy.worker.Worker", *words)
        self._until("the Spark workers", lambda: len(self._state()["workers"]) == 2)

    def _daemon(self, name: str, kind: str, *words: str) -> pathlib.Path:
        log = self._place.folder / f"{name}.log"
        command = [self._java, "-Xmx512m", "-cp", f"{self._home}/jars/*", kind, "--host", HOST]
        with log.open("wb") as out:
            self._daemons.append(
                subprocess.Popen(
                    [*command, "--port", "0", "--webui-port", "0", *words],
                    env=self._place.env,
                    cwd=self._place.work,
                    stdout=out,
                    stderr=out,
                )
            )
        return log

    def _state(self) -> dict[str, Any]:
        with urllib.request.urlopen(self._ui, timeout=DEADLINE) as answer:
            return json.load(answer)

    def free(self) -> None:
        """Wait until no application holds a core."""
        self._until(
            "the end of the Spark applications", lambda: not any(w["coresused"] for w in self._state()["workers"])
        )

    def _until(self, what: str, holds: Callable[[], Any]) -> Any:
        end = time.monotonic() + DEADLINE
        while not (value := holds()):
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self._daemons):
                raise BenchError(f"waited in vain for {what}; logs: {self._tails()}")
            time.sleep(0.02)
        return value

    def _tails(self) -> str:
        return " ".join(log.read_text()[-500:] for log in sorted(self._place.folder.glob("*.log")))

    def close(self) -> None:
        """Stop the daemons; executors end with them."""
        for daemon in self._daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
