"""A Host's operations on a SparkSession: a classic one with a JVM in this process, or Spark Connect's."""

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
from collections.abc import Mapping, Set
from typing import Any

from tfcluster import spark_connect, spark_gpus, spark_lost, spark_placement, spark_task
from tfcluster.spark_properties import defaults, escape

_LOOK = 2.0  # interval of checks of Spark Connect's server, and timeout of each, in seconds
_AWAY = 30.0  # seconds without an answer after which that server counts as lost
_FIRST = 5.0  # seconds for its first answer, before a reservation
_STOPPING = 5.0  # seconds between spark.stop()'s changes of the JVM's and of Python's flag
# Loggers of the progress of a session on YARN: the application's state, and connection errors.
_PROGRESS = ("org.apache.spark.deploy.yarn.Client", "org.apache.hadoop.ipc.Client")
# The settings that limit a session's executors, by the kind of its master.
_MORE = {
    "spark": "spark.cores.max",
    "yarn": "spark.executor.instances",
    "k8s": "spark.executor.instances",
    "local": "N of the master local[N]",
}
# Spark's messages if a program did not run, or the notebook may not run one.
_NO_PROGRAM = ("Cannot run program", "Subprocess exited with status", "Py4JSecurityException")


class Session:
    """One SparkSession. Its methods may be called from any thread."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.connect = is_connect(spark)
        self._counted = (0.0, 0, "")  # time, slots, executors: of Spark Connect; guarded by _count
        self._count = threading.Lock()
        self._most = 0  # executors that Spark had at the same time
        self._replaced: set[str] = set()  # executors on lost hosts; guarded by _avoiding
        self._avoiding = threading.Lock()
        self._shared = ""
        self._gpus = spark_gpus.Agents(spark)
        self._made = False  # by this process, where nothing calls spark.stop() before the end is reported
        self._gone = ""  # why Spark Connect's server counts as lost
        self._looked = self._answered = time.monotonic()  # of its server: last check, last answer
        if not self.connect:
            self._sc = spark.sparkContext

    @classmethod
    def make(cls, conf: Mapping[str, str], below: str | None = None) -> Session:
        """Makes a session. Settings are passed in a file, because other users can read arguments. The file is
        removed at once, or with the cluster's folder if this process is killed first."""
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
            session = cls(SparkSession.builder.getOrCreate())
            session._made = True
            return session
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def share(self) -> str:
        """Starts Spark Connect's server for the session, unless it runs; returns its URL with its token."""
        if not self._shared:
            if int(self.spark.version.partition(".")[0]) < 4:
                # The server listens on all addresses without a token: each client could run code here.
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
            # pyspark sends a token without TLS only to this name
            self._shared = f"sc://localhost:{running.server().getPort()}/;token={token}"
        return self._shared

    def stop(self) -> None:
        """Stops a session that this process made."""
        with contextlib.suppress(Exception):
            self.spark.stop()

    def ended(self) -> str:
        """Returns why the session has ended; "" while it lives."""
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
        # spark.stop() sets the JVM's flag first, cleans up, and sets Python's flag last
        deadline = time.monotonic() + (0 if self._made else _STOPPING)
        while self._sc._jsc is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        return "the SparkSession was stopped" if self._sc._jsc is None else "the Spark application was ended"

    def answers(self, seconds: float) -> bool:
        """Reports whether Spark Connect's server answers within this time."""
        return spark_connect.answers(self.spark, seconds)

    def unusable(self) -> str:
        """Returns why a cluster cannot be reserved on the session; "" if it can."""
        why = self.ended()
        if not why and self.connect and not self.answers(_FIRST):
            return f"its Spark Connect server does not answer within {_FIRST:.0f} s"
        return why

    def conf(self, key: str, default: str) -> str:
        """Returns a setting; default if the session does not reveal it."""
        try:
            value = setting(self.spark, key, default)
        except Exception:
            return default
        return default if value is None else str(value)

    def describe(self) -> dict[str, Any]:
        """Returns the data for a driver's hello."""
        told = {
            "version": self.spark.version,
            "connect": self.connect,
            "master": self.conf("spark.master", ""),
            "application": self.conf("spark.app.id", ""),
            "dynamic": self.conf("spark.dynamicAllocation.enabled", "false") == "true",
            "speculation": self.conf("spark.speculation", "false") == "true",
            "gpus": self.conf(spark_gpus.TASK, ""),
            "executor_gpus": self.conf(spark_gpus.EXECUTOR, ""),
            "host": self.conf("spark.driver.host", ""),
        }
        if not self.connect:
            told["application"] = self._sc.applicationId
            told["ui"] = self._sc.uiWebUrl or ""
        return told

    def add_file(self, path: str, name: str) -> None:
        """Gives executors a file. Spark fetches it again for each later executor, so it is stored with the
        session's own files."""
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
        if any(url.endswith("/" + name) for url in self._sc.listFiles):  # by another cluster of this session
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

    def slots_each(self, gpus: int = 0) -> int:
        """Returns the number of tasks, with gpus GPUs each, that an executor runs at once; 0 if unknown."""
        if _in_driver(self.conf("spark.master", "")):  # with local[N], N counts, not the setting
            return 0
        cores = self.conf("spark.executor.cores", "")
        limits = [int(cores) // int(self.conf("spark.task.cpus", "1") or 1)] if cores else []
        if gpus and (have := self.conf(spark_gpus.EXECUTOR, "")):
            limits.append(int(have) // gpus)
        return max(1, min(limits)) if limits else 0

    def slots(self, wanted: int, group: str, gpus: int = 0) -> tuple[int, str]:
        """Returns how many tasks Spark can run at once, and a description. Jobs for it have this group."""
        have, who = self._count_connect(wanted, group) if self.connect else self._slots_classic(gpus)
        master = self.conf("spark.master", "")
        more = next((setting for kind, setting in _MORE.items() if master.startswith(kind)), _MORE["spark"])
        remedy = f"ask for fewer executors, free or add workers, or raise {more}"
        return have, f"Spark has {_count(have, 'slot')} of {wanted}: {who}; {remedy}"

    def _slots_classic(self, gpus: int) -> tuple[int, str]:
        have = self.most_tasks(gpus)
        cores = "" if _in_driver(self._sc.master) else self.conf("spark.executor.cores", "")
        each = f" of {_count(int(cores), 'core')}" if cores else ""
        on = [f"{_count(n, 'executor')}{each} on {host}" for host, n in sorted(self.executors().items())]
        return have, ", ".join(on) or "no executor yet"

    def most_tasks(self, gpus: int) -> int:
        """Returns how many tasks with gpus GPUs each Spark can run at once; not on Spark Connect."""
        return int(self._sc._jsc.sc().maxNumConcurrentTasks(self._gpus.known(gpus)))

    def executors(self) -> dict[str, int]:
        """Returns the number of executors on each host; not on Spark Connect."""
        hosts: dict[str, int] = {}
        own = self._sc._jvm.org.apache.spark.SparkEnv.get().blockManager().blockManagerId()
        local = _in_driver(self._sc.master)
        for info in self._sc._jsc.sc().statusTracker().getExecutorInfos():
            if local or (info.host(), info.port()) != (own.host(), own.port()):  # Spark lists its driver, too
                hosts[info.host()] = hosts.get(info.host(), 0) + 1
        self._most = max(self._most, sum(hosts.values()))
        return hosts

    def avoid(self, host: str) -> str:
        """Has Spark replace its executors on a host that does not answer; returns what to wait for, if it cannot."""
        with self._avoiding:  # several executors of a host are lost at the same time
            n, waits = spark_lost.avoid(self, host, self._replaced)
            self._most -= n  # agents share the other executors rather than wait for these
        return waits

    def other_hosts(self, host: str) -> list[str]:
        """Returns the hosts other than the given one that have executors; none on Spark Connect and local masters."""
        names = spark_lost.names(host)
        hosts = {} if self.connect or _in_driver(self.conf("spark.master", "")) else self.executors()
        return [other for other in sorted(hosts) if not spark_lost.same(names, spark_lost.names(other))]

    def lacks_executor(self) -> bool:
        """Reports whether Spark has fewer executors than before: another may come. True if unknown."""
        return self.connect or sum(self.executors().values()) < self._most

    def _count_connect(self, wanted: int, group: str) -> tuple[int, str]:
        """Counts executors by a stage of tasks that last a moment: Spark Connect does not list executors."""
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
        """Returns why a submitted stage may not run yet; "" if unknown."""
        if self.connect:
            return ""
        _, running = spark_gpus.running(self._sc)
        if running:
            return (
                f"{_count(running, 'task')} of this session's own Spark jobs hold slots: wait for them, or cancel them"
            )
        return ""

    def launch(self, order: spark_task.Order, group: str, stage: str) -> list[dict[str, Any]]:
        """Runs the stage that starts the agents and returns each task's answer."""
        _by_value()
        n, gpus = len(order["agents"]), order["gpus"]
        if self.connect:
            with contextlib.suppress(AttributeError):
                self.spark.addTag(group)
            stage_of = spark_task.agents_arrow(order)
            frame = self.spark.range(0, n, 1, n)
            frame = frame.mapInArrow(stage_of, "said string", barrier=True, **self._gpus.asked(gpus))
            return [json.loads(row.said) for row in frame.collect()]
        self._sc.setJobGroup(group, stage, interruptOnCancel=True)
        earlier = set(self._sc.statusTracker().getJobIdsForGroup(group))  # of this launch, before this stage
        try:
            said = None if gpus or self._speculates() else self._pipe(order, stage)
            piped = said is not None
            if said is None:
                data = spark_placement.in_python(self._sc, order["hosts"], gpus > 0 or self._speculates())
                data = data.barrier().mapPartitions(spark_task.agents_stage(order))
                self._gpus.give(data, gpus).setName(stage)
                said = [json.loads(line) for line in data.collect()]
            if self._retried(group, earlier, piped):  # the agents of its first attempt run, too
                return [{**s, "error": "Spark lost an executor while the agents were started"} for s in said]
            return said
        finally:
            self._sc._jsc.clearJobGroup()

    def _speculates(self) -> bool:
        """Reports whether Spark may run a task twice at the same time, except in a barrier stage."""
        return self.conf("spark.speculation", "false") == "true"

    def _pipe(self, order: spark_task.Order, stage: str) -> list[dict[str, Any]] | None:
        """Runs the agents' program in a stage without Python on the executors: in a new session Python's
        workers take most of the time to start. Returns None if Spark could not run the program; a stage with
        Python may, or reports the reason."""
        jsc = self._sc._jsc
        lines = [json.dumps(spark_task.words_for(self._with_python(order), agent)) for agent in order["agents"]]
        folder = self._sc._jvm.org.apache.spark.SparkFiles.getRootDirectory() if _in_driver(self._sc.master) else "."
        jsc.setCallSite(stage)
        try:
            data = spark_placement.located(self._sc, lines, order["hosts"])
            data = data.pipe([os.path.join(folder, order["program"]), "spark-slot"])
            return [json.loads(line) for line in data.setName(stage).collect()]
        except Exception as e:
            if any(mark in str(e) for mark in _NO_PROGRAM):
                return None
            raise
        finally:
            jsc.clearCallSite()

    def _with_python(self, order: spark_task.Order) -> spark_task.Order:
        """Returns the order with the interpreter of Spark's workers."""
        return {**order, "python": order["python"] or self._sc.pythonExec}

    def _retried(self, group: str, earlier: Set[int], tasks: bool) -> bool:
        """Reports whether a stage of the group's later jobs, or with tasks a task, ran more than once."""
        tracker = self._sc.statusTracker()
        for job in set(tracker.getJobIdsForGroup(group)) - earlier:
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                known = tracker.getStageInfo(stage)
                if known is not None and (known.currentAttemptId > 0 or (tasks and known.numFailedTasks > 0)):
                    return True
        return False

    def cancel(self, group: str) -> None:
        """Cancels the jobs of the group."""
        with contextlib.suppress(Exception):
            if self.connect:
                self.spark.interruptTag(group)
            else:
                self._sc.cancelJobGroup(group)


def _log_progress() -> None:
    """Enables Spark's logs of the progress on YARN, for the driver: Spark's shells log warnings only."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    log4j = SparkContext._jvm.org.apache.logging.log4j
    for name in _PROGRESS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.INFO)


def is_connect(spark: Any) -> bool:
    """Reports whether a session is a session of Spark Connect."""
    return not hasattr(type(spark), "_jvm") and "connect" in type(spark).__module__


def setting(spark: Any, key: str, default: str) -> Any:
    """Returns a session's setting. In a classic session spark.conf would first initialise SQL, for 0.25 s."""
    conf = spark.conf if is_connect(spark) else spark.sparkContext._conf
    return conf.get(key, default)


def _in_driver(master: str) -> bool:
    """Reports whether the only executor is the driver itself."""
    return master.startswith("local") and not master.startswith("local-cluster")


def _by_value() -> None:
    """Makes Spark pickle functions for executors by value: they have no package tfcluster."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(spark_task)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
