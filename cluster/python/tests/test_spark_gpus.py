"""Which profile a feed's tasks have in a session with GPUs, and which sessions are refused."""

from __future__ import annotations

import types
from typing import Any

import pytest

from tfcluster import spark_gpus
from tfcluster.errors import UsageError

pytest.importorskip("pyspark", reason="missing: pyspark")


def session(version: str, **conf: str) -> Any:
    """A session of Spark Connect with these settings of spark.*, underscores for dots."""
    named = {"spark." + key.replace("_", "."): value for key, value in conf.items()}
    return types.SimpleNamespace(version=version, conf=named)


def test_profile_without_gpus() -> None:
    """Spark 4: tasks of the feed ask for what the session's tasks ask, but for its GPUs."""
    asked = spark_gpus.for_feed(session("4.0.1", task_resource_gpu_amount="1", task_cpus="2")).taskResources
    assert {name: request.amount for name, request in asked.items()} == {"cpus": 2.0}


@pytest.mark.parametrize(
    "conf", [{}, {"executor_resource_gpu_amount": "1"}, {"task_resource_gpu_amount": "1", "master": "local[2]"}]
)
def test_default_profile(conf: dict[str, str]) -> None:
    """Where the session's tasks wait for no GPU, on any Spark."""
    assert spark_gpus.for_feed(session("3.5.1", **conf)) is None


def test_before_spark_4() -> None:
    """mapInArrow has no profile there: refused, with the setting and what to do."""
    with pytest.raises(UsageError) as e:
        spark_gpus.for_feed(session("3.5.1", task_resource_gpu_amount="1"))
    assert str(e.value) == (
        "spark.task.resource.gpu.amount is 1 in this session, so the tasks that read a DataFrame of Spark 3.5.1 would "
        "wait for GPUs, which the cluster's agents hold: make the session without it "
        "(spark.executor.resource.gpu.amount is enough), or with Spark 4"
    )
