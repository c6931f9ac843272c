"""A SparkSession as a Host needs it: classic, with its JVM beside it, or Spark Connect's, with nothing but a wire."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

from tfcluster import spark_connect, spark_task
from tfcluster.spark_properties import defaults, escape

_LOOK = 2.0  # seconds between two looks at Spark Connect's server, and what each may take
_AWAY = 30.0  # seconds without an answer from which on that server is gone: networks break for less
_FIRST = 5.0  # seconds that it may take to answer before anything is reserved
_STOPPING = 5.0  # seconds that spark.stop() may take from the JVM's flag to Python's
# Who logs how a session on YARN comes about: the application's state, and a ResourceManager that does not answer.
_PROGRESS = ("org.apache.spark.deploy.yarn.Client", "org.apache.hadoop.ipc.Client")
# What bounds the executors of a session, by the kind of its master.
_MORE = {
    "spark": "spark.cores.max",
    "yarn": "spark.executor.instances",
    "k8s": "spark.executor.instances",
    "local": "N of the master local[N]",
}
# How Spark says that a program did not run, or that the notebook may not have one run.
_NO_PROGRAM = ("Cannot run program", "Subprocess exited with status", "Py4JSecurityException")
# How Spark says that it runs no barrier stage on executors that come and go.
_DYNAMIC = ("SPARK-24942", "BARRIER_STAGE_WITH_DYNAMIC_ALLOCATION", "dynamic resource allocation")


class Session:
    """One SparkSession. Its methods may be called from any thread."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.connect = is_connect(spark)
        self._counted = (0.0, 0, "")  # when, slots, who: of Spark Connect; guarded by _count
        self._count = threading.Lock()
        self._shared = ""
        self._gone = ""  # why Spark Connect's server is taken for gone
        self._looked = self._answered = time.monotonic()  # at Spark Connect's server: when, and when it last answered
        if not self.connect:
            self._sc = spark.sparkContext

    @classmethod
    def make(cls, conf: Mapping[str, str], below: str | None = None) -> Session:
        """A session of our own. Settings go by a file that is removed at once: an argument is seen by everyone. It lies
        below the cluster's folder, which goes with the cluster where this process is killed first."""
        from pyspark.sql import SparkSession

        folder = tempfile.mkdtemp(prefix="tfcluster-conf-", dir=below)
        try:
            path = os.path.join(folder, "spark.properties")
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as f:
                f.writelines(f"{key} {value}\n" for key, value in defaults().items() if key not in conf)
                f.writelines(f"{key} {escape(value)}\n" for key, value in conf.items())
            os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(path)} pyspark-shell"
            if conf.get("spark.master", "").startswith("yarn"):
                with contextlib.suppress(Exception):
                    _log_progress()
            return cls(SparkSession.builder.getOrCreate())
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def share(self) -> str:
        """Starts Spark Connect's server on the session, where it is not up, and gives its address with its token."""
        if not self._shared:
            if int(self.spark.version.partition(".")[0]) < 4:
                # Its server listens on every address and knows no token: who reaches it runs what he likes as us.
                raise RuntimeError(
                    f"the Spark Connect server of Spark {self.spark.version} lets anybody in, so the cluster's session "
                    "is not shared: make the SparkSession in the notebook and reserve on it, or take Spark 4"
                )
            service = getattr(self._sc._jvm.org.apache.spark.sql.connect.service, "SparkConnectService", None)
            if not callable(getattr(service, "start", None)):
                raise RuntimeError(
                    f"this Spark {self.spark.version} has no Spark Connect server: give "
                    f"--packages org.apache.spark:spark-connect_2.13:{self.spark.version}"
                )
            service.start(self._sc._jsc.sc())
            running = getattr(
                getattr(self._sc._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$"
            )
            token = self._sc.getConf().get("spark.connect.authenticate.token", "")
            # pyspark sends a token without TLS to this very name only
            self._shared = f"sc://localhost:{running.server().getPort()}/;token={token}"
        return self._shared

    def stop(self) -> None:
        """Ends a session of our own."""
        with contextlib.suppress(Exception):
            self.spark.stop()

    def ended(self) -> str:
        """Why the session is over; "" while it lives."""
        if self.connect:
            if getattr(self.spark, "is_stopped", False):
                return "the Spark Connect session was stopped"
            now = time.monotonic()
            if self._gone or now - self._looked < _LOOK:
                return self._gone
            if self.answers(_LOOK):
                self._answered = now
            self._looked = time.monotonic()
            silent = self._looked - self._answered
            if silent > _AWAY:
                self._gone = f"the Spark Connect server has not answered for {silent:.0f} s"
            return self._gone
        if self._sc._jsc is None:
            return "the SparkSession was stopped"
        try:
            if not self._sc._jsc.sc().isStopped():
                return ""
        except Exception:
            return "Spark's JVM ended" if self._sc._jsc is not None else "the SparkSession was stopped"
        # spark.stop() sets the JVM's flag first and Python's last, and clears up in between
        deadline = time.monotonic() + _STOPPING
        while self._sc._jsc is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        return "the SparkSession was stopped" if self._sc._jsc is None else "the Spark application was ended"

    def answers(self, seconds: float) -> bool:
        """Whether Spark Connect's server answers within this time."""
        return spark_connect.answers(self.spark, seconds)

    def unusable(self) -> str:
        """Why a cluster cannot be reserved on the session; "" where it can."""
        why = self.ended()
        if not why and self.connect and not self.answers(_FIRST):
            return f"its Spark Connect server does not answer within {_FIRST:.0f} s"
        return why

    def conf(self, key: str, default: str) -> str:
        """A setting, as far as the session tells it."""
        try:
            value = setting(self.spark, key, default)
        except Exception:
            return default
        return default if value is None else str(value)

    def describe(self) -> dict[str, Any]:
        """What a driver must know before it asks for anything."""
        told = {
            "version": self.spark.version,
            "connect": self.connect,
            "master": self.conf("spark.master", ""),
            "application": self.conf("spark.app.id", ""),
            "dynamic": self.conf("spark.dynamicAllocation.enabled", "false") == "true",
            "speculation": self.conf("spark.speculation", "false") == "true",
            "gpus": self.conf("spark.task.resource.gpu.amount", ""),
            "host": self.conf("spark.driver.host", ""),
        }
        if not self.connect:
            told["application"] = self._sc.applicationId
            told["ui"] = self._sc.uiWebUrl or ""
        return told

    def add_file(self, path: str, name: str) -> None:
        """Gives executors a file. Spark fetches it again for every later executor, so it lies where the session's
        own files do, and stays as long as they."""
        if self.connect:
            link = os.path.join(tempfile.mkdtemp(prefix="tfcluster-ship-"), name)
            try:
                os.symlink(path, link)
                self.spark.addArtifact(link, file=True)
            except Exception as e:
                if "already" not in str(e).lower():  # another cluster of this session brought it
                    raise
            finally:
                shutil.rmtree(os.path.dirname(link), ignore_errors=True)
            return
        if any(url.endswith("/" + name) for url in self._sc.listFiles):  # another cluster of this session brought it
            return
        folder = os.path.join(self._sc._temp_dir, "tfcluster")
        os.makedirs(folder, exist_ok=True)
        kept = os.path.join(folder, name)
        if not os.path.exists(kept):
            aside = tempfile.NamedTemporaryFile(dir=folder, delete=False)  # noqa: SIM115 - renamed below
            aside.close()
            shutil.copyfile(path, aside.name)
            os.chmod(aside.name, 0o755)
            os.rename(aside.name, kept)
        self._sc.addFile(kept)

    def slots_each(self) -> int:
        """How many tasks an executor runs at once; 0 where that is not said."""
        if _in_driver(self.conf("spark.master", "")):  # its cores are local[N]'s, whatever the setting says
            return 0
        cores = self.conf("spark.executor.cores", "")
        return max(1, int(cores) // int(self.conf("spark.task.cpus", "1") or 1)) if cores else 0

    def slots(self, wanted: int, group: str) -> tuple[int, str]:
        """How many tasks Spark can run at once, and in words what it has. What runs to find out is of the group."""
        have, who = self._count_connect(wanted, group) if self.connect else self._slots_classic()
        master = self.conf("spark.master", "")
        more = next((setting for kind, setting in _MORE.items() if master.startswith(kind)), _MORE["spark"])
        remedy = f"ask for fewer executors, free or add workers, or raise {more}"
        return have, f"Spark has {_count(have, 'slot')} of {wanted}: {who}; {remedy}"

    def _slots_classic(self) -> tuple[int, str]:
        jsc = self._sc._jsc.sc()
        profile = jsc.resourceProfileManager().defaultResourceProfile()
        have = int(jsc.maxNumConcurrentTasks(profile))
        hosts: dict[str, int] = {}
        own = self._sc._jvm.org.apache.spark.SparkEnv.get().blockManager().blockManagerId()
        local = _in_driver(self._sc.master)
        for info in jsc.statusTracker().getExecutorInfos():
            if local or (info.host(), info.port()) != (own.host(), own.port()):  # Spark lists its driver too
                hosts[info.host()] = hosts.get(info.host(), 0) + 1
        cores = "" if local else self.conf("spark.executor.cores", "")
        each = f" of {_count(int(cores), 'core')}" if cores else ""
        on = [f"{_count(n, 'executor')}{each} on {host}" for host, n in sorted(hosts.items())]
        return have, ", ".join(on) or "no executor yet"

    def _count_connect(self, wanted: int, group: str) -> tuple[int, str]:
        """Counts executors by a stage of tasks that stay for a moment: Spark Connect tells nothing of them."""
        with self._count:
            when, have, who = self._counted
            if when and (have >= wanted or time.monotonic() - when < 2):
                return have, who
            tasks = max(4, 2 * wanted)
            with contextlib.suppress(AttributeError):
                self.spark.addTag(group)
            frame = self.spark.range(0, tasks, 1, tasks).mapInArrow(spark_task.census_arrow(0.2), "said string")
            _by_value()
            seen = spark_task.side_by_side(row.said for row in frame.collect())
            hosts: dict[str, int] = {}
            for host, _ in seen:
                hosts[host] = hosts.get(host, 0) + 1
            who = ", ".join(f"{_count(n, 'executor')} on {host}" for host, n in sorted(hosts.items()))
            local = re.match(r"local(?:-cluster)?\[(\d+|\*)", self.conf("spark.master", ""))
            have = sum(max(self.slots_each(), at_once) for at_once in seen.values())
            if local and not self.conf("spark.master", "").startswith("local-cluster"):
                have = os.cpu_count() or 1 if local[1] == "*" else int(local[1])
            self._counted = (time.monotonic(), have, who)
            return have, who

    def busy(self) -> str:
        """Why a stage that was submitted may not run yet; "" where that is not known."""
        if self.connect:
            return "Spark starts the stage: it waits for free slots"
        tracker = self._sc._jsc.sc().statusTracker()
        running = 0
        for stage in tracker.getActiveStageIds():
            info = self._sc.statusTracker().getStageInfo(stage)
            if info is not None and not info.name.startswith("tfcluster "):
                running += info.numActiveTasks
        if running:
            return (
                f"{_count(running, 'task')} of this session's own Spark jobs hold slots: wait for them, or cancel them"
            )
        return "Spark starts the stage"

    def launch(self, order: spark_task.Order, group: str, stage: str) -> list[dict[str, Any]]:
        """Runs the barrier stage and gives what each task said."""
        _by_value()
        n = len(order["agents"])
        if self.connect:
            with contextlib.suppress(AttributeError):
                self.spark.addTag(group)
            frame = self.spark.range(0, n, 1, n).mapInArrow(spark_task.agents_arrow(order), "said string", barrier=True)
            return [json.loads(row.said) for row in frame.collect()]
        self._sc.setJobGroup(group, stage, interruptOnCancel=True)
        try:
            said = None if order["hold"] or self._speculates() else self._pipe(order, stage)
            piped = said is not None
            if said is None:
                data = self._sc.parallelize(range(n), n).barrier().mapPartitions(spark_task.agents_stage(order))
                data.setName(stage)
                said = [json.loads(line) for line in data.collect()]
            if self._retried(group, piped):  # the agents of its first attempt are there too
                return [{**s, "error": "Spark lost an executor while the agents were started"} for s in said]
            return said
        finally:
            self._sc._jsc.clearJobGroup()

    def _speculates(self) -> bool:
        """Whether Spark may run a task twice side by side: it does so with no task of a barrier stage."""
        return self.conf("spark.speculation", "false") == "true"

    def _pipe(self, order: spark_task.Order, stage: str) -> list[dict[str, Any]] | None:
        """Runs the agents' program as tasks of a stage that needs no Python on the executors: where a session is
        fresh, Python's workers take longer to come up than all else. None where Spark could not run the program: a
        stage with Python tells why, or can."""
        jsc = self._sc._jsc
        lines = [json.dumps(spark_task.words_for(self._with_python(order), agent)) for agent in order["agents"]]
        folder = self._sc._jvm.org.apache.spark.SparkFiles.getRootDirectory() if _in_driver(self._sc.master) else "."
        jsc.setCallSite(stage)
        try:
            data = jsc.parallelize(lines, len(lines)).pipe([os.path.join(folder, order["program"]), "spark-slot"])
            return [json.loads(line) for line in data.setName(stage).collect()]
        except Exception as e:
            if any(mark in str(e) for mark in _NO_PROGRAM):
                return None
            raise
        finally:
            jsc.clearCallSite()

    def _with_python(self, order: spark_task.Order) -> spark_task.Order:
        """The order with the interpreter that Spark runs its own workers with."""
        return {**order, "python": order["python"] or self._sc.pythonExec}

    def _retried(self, group: str, tasks: bool) -> bool:
        """Whether Spark ran a stage of the group more than once, or, where they are tried one by one, a task."""
        tracker = self._sc.statusTracker()
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                known = tracker.getStageInfo(stage)
                if known is not None and (known.currentAttemptId > 0 or (tasks and known.numFailedTasks > 0)):
                    return True
        return False

    def cancel(self, group: str) -> None:
        """Ends what launch runs under the group."""
        with contextlib.suppress(Exception):
            if self.connect:
                self.spark.interruptTag(group)
            else:
                self._sc.cancelJobGroup(group)

    def words(self, e: BaseException) -> str:
        """What went wrong, in one line: the reason in it, not the stacks of Python and Java around it."""
        text = str(e) or type(e).__name__
        if any(mark in text for mark in _DYNAMIC):
            return (
                "this session allocates executors dynamically, so Spark removes those without jobs: "
                "set spark.dynamicAllocation.enabled=false explicitly where the session is made"
            )
        for pattern in (
            r"(?:RuntimeError|PythonException): (.+)",
            r"Caused by: [\w.$]+: (.+)",
            r"Job \d+ cancelled[^\n]*",
            r"Exception: (.+)",
            r"\n[\w.$]+(?:Exception|Error): (.+)",
        ):
            found = re.findall(pattern, text)
            if found:
                return str(found[-1]).strip()
        return text.strip().splitlines()[0]


def _log_progress() -> None:
    """Has Spark log what the making of a session on YARN waits for, for the driver: its shells log warnings alone."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    log4j = SparkContext._jvm.org.apache.logging.log4j
    for name in _PROGRESS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.INFO)


def is_connect(spark: Any) -> bool:
    """Whether a session is Spark Connect's."""
    return not hasattr(type(spark), "_jvm") and "connect" in type(spark).__module__


def setting(spark: Any, key: str, default: str) -> Any:
    """A setting of a session's. Through its own conf a classic one would first set up all of SQL, for 0.25 s."""
    conf = spark.conf if is_connect(spark) else spark.sparkContext._conf
    return conf.get(key, default)


def _in_driver(master: str) -> bool:
    """Whether the one executor is the driver itself."""
    return master.startswith("local") and not master.startswith("local-cluster")


def _by_value() -> None:
    """Functions for executors travel whole: there is no package tfcluster there."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(spark_task)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
