"""GPUs of a Spark session: profiles that give them to tasks that start agents, and not to tasks of a feed."""

from __future__ import annotations

import threading
from typing import Any

from tfcluster.errors import UsageError

EXECUTOR = "spark.executor.resource.gpu.amount"
TASK = "spark.task.resource.gpu.amount"
STAGE = "tfcluster "  # the beginning of the descriptions of jobs that start agents
_LOCAL = "local["  # masters with the driver as only executor, which has no profiles


def profile(cpus: int, gpus: int = 0) -> Any:
    """Returns a profile of requests of tasks only: its tasks run on the session's own executors."""
    from pyspark.resource import ResourceProfile
    from pyspark.resource.requests import TaskResourceRequest

    requests = {"cpus": TaskResourceRequest("cpus", cpus)}
    if gpus:
        requests["gpu"] = TaskResourceRequest("gpu", gpus)
    return ResourceProfile(_task_req=requests)


class Agents:
    """The profiles of the tasks that start agents, for a session in which other tasks get no GPUs."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._known: dict[int, Any] = {}  # the JVM's profiles, by the number of GPUs; guarded by _lock

    def _need(self, gpus: int) -> bool:
        """Reports whether agents need a profile: the session has GPUs, and its default profile none."""
        own, master = setting(self._spark, TASK), setting(self._spark, "spark.master")
        return gpus > 0 and not own and setting(self._spark, EXECUTOR) != "" and not master.startswith(_LOCAL)

    def asked(self, gpus: int) -> dict[str, Any]:
        """Returns the argument of mapInArrow for tasks with this number of GPUs."""
        return {"profile": profile(_cpus(self._spark), gpus)} if self._need(gpus) else {}

    def known(self, gpus: int) -> Any:
        """Returns the JVM's profile of tasks with this number of GPUs, of a classic session."""
        context = self._spark.sparkContext
        if not self._need(gpus):
            return context._jsc.sc().resourceProfileManager().defaultResourceProfile()
        with self._lock:
            if gpus not in self._known:
                self._known[gpus] = _registered(context, _cpus(self._spark), gpus)
            return self._known[gpus]

    def give(self, data: Any, gpus: int) -> Any:
        """Returns the RDD data with this number of GPUs for its tasks."""
        from pyspark.resource import ResourceProfile

        return data.withResources(ResourceProfile(self.known(gpus))) if self._need(gpus) else data


def for_feed(spark: Any, *, rdd: bool = False) -> Any:
    """Returns the profile of a feed's tasks on a session; None if they run in the default profile.

    Raises UsageError if they would wait for GPUs or slots that agents hold until the cluster is released. In
    a session with spark.task.resource.gpu.amount each task waits for GPUs.
    """
    amount = setting(spark, TASK)
    waits = bool(amount) and float(amount) > 0 and not setting(spark, "spark.master").startswith(_LOCAL)
    if waits and (rdd or int(spark.version.partition(".")[0]) < 4):
        data = "an RDD" if rdd else f"a DataFrame of Spark {spark.version}"
        raise UsageError(
            f"{TASK} is {amount} in this session, so the tasks that read {data} would wait for GPUs, which the "
            f"cluster's agents hold: make the session without it ({EXECUTOR} is enough)"
            + (", or feed a DataFrame" if rdd else ", or with Spark 4")
        )
    made = profile(_cpus(spark)) if waits else None
    if hasattr(spark, "_jsparkSession") and (held := running(spark.sparkContext)[0]):
        context = spark.sparkContext
        java = _registered(context, _cpus(spark), 0)
        if context._jsc.sc().maxNumConcurrentTasks(java) <= held:
            raise UsageError(
                f"the {held} agents of a cluster with --gpus hold every slot of this session, so nothing could read "
                f"DATA: give each executor a slot more where the session is made, spark.executor.cores {_cpus(spark)} "
                "more than the agents need"
            )
    return made


def running(context: Any) -> tuple[int, int]:
    """Returns the number of a classic session's running tasks that start agents, and the number of others.

    With GPUs the former run until the agents end.
    """
    stages = context._jsc.sc().statusStore().activeStages()
    agents = others = 0
    for n in range(stages.size()):
        stage = stages.apply(n)
        said, tasks = stage.description(), stage.numActiveTasks()  # a stage of Python has no name of ours
        if said.isDefined() and said.get().startswith(STAGE):
            agents += tasks
        else:
            others += tasks
    return agents, others


def _registered(context: Any, cpus: int, gpus: int) -> Any:
    """Returns a profile that the scheduler of a classic session knows."""
    java = context._jvm.org.apache.spark.resource
    requests = java.TaskResourceRequests().cpus(cpus)
    if gpus:
        requests = requests.resource("gpu", float(gpus))
    made = java.ResourceProfileBuilder().require(requests).build()
    context._jsc.sc().resourceProfileManager().addResourceProfile(made)
    return made


def _cpus(spark: Any) -> int:
    return int(setting(spark, "spark.task.cpus") or 1)


def setting(spark: Any, key: str) -> str:
    """Returns a setting of a session or a SparkContext; "" if it has none or does not reveal it."""
    try:
        context = spark.sparkContext if hasattr(spark, "_jsparkSession") else spark
        conf = context.getConf() if hasattr(context, "getConf") else context.conf
        return str(conf.get(key, "") or "")
    except Exception:
        return ""
