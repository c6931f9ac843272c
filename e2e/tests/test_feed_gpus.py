"""A feed of Spark beside agents that have all GPUs of its executors, on a real standalone cluster with a worker whose
discovery script names GPUs that are not there."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from conftest import Notebook
from standalone import NEEDS_SPARK, standalone
from test_feed import COUNT, TOTAL

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]

OWN = """
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master({url!r}).config("spark.executor.cores", {cores}).config("spark.cores.max", 4)
         .config("spark.executor.resource.gpu.amount", 1).config("spark.executor.memory", "512m"){more}.getOrCreate())
"""
RESERVE = "%tfcluster reserve --backend spark --workers 2 --gpus 1 --no-zygote --framework none"


@pytest.fixture(scope="module")
def master(module_env: dict[str, str]) -> Iterator[str]:
    """The URL of a master with one worker of four cores and two GPUs."""
    folder = pathlib.Path(module_env["TFCLUSTER_TEST"])
    script = folder / "gpus.sh"
    script.write_text('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["4", "7"]}\'\n')
    script.chmod(0o755)
    properties = folder / "worker.properties"
    properties.write_text(f"spark.worker.resource.gpu.amount 2\nspark.worker.resource.gpu.discoveryScript {script}\n")
    with standalone(module_env, folder, "--cores", "4", "--memory", "3g", "--properties-file", str(properties)) as url:
        yield url


def test_a_session_of_the_clusters_own(notebook: Notebook, master: str) -> None:
    """E8: agents have all GPUs and all cores; jobs of the session, with shuffles too, wait for neither."""
    pytest.importorskip("grpc_status", reason="missing: Spark Connect's client")
    notebook.ok(f"c = {RESERVE} --master {master}\nspark = c.spark()\n" + COUNT + TOTAL)
    notebook.ok("df = spark.range(10_003).repartition(5)\n%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train df\ntotal(run)[0]")
    assert cell.result == "10003", cell.all
    notebook.ok("spark.stop()\n%tfcluster shutdown")


@pytest.mark.parametrize(
    ("more", "data"),
    [
        ("", "spark.range(10_003).repartition(5)"),
        ('.config("spark.task.resource.gpu.amount", 1)', "spark.range(0, 10_003, 1, 5)"),
    ],
)
def test_the_notebooks_own_session(notebook: Notebook, master: str, more: str, data: str) -> None:
    """E8: the stage of the agents keeps the GPUs; a feed runs beside it, also where the session gives each task one."""
    notebook.ok(OWN.format(url=master, cores=2, more=more))
    notebook.ok(RESERVE + "\n" + COUNT + TOTAL)
    notebook.ok(f"df = {data}\n%tfcluster start count")
    cell = notebook.ok("run = %tfcluster train df\ntotal(run)[0]")
    assert cell.result == "10003", cell.all
    notebook.ok("%tfcluster shutdown --force\nspark.stop()")


def test_no_slot_beside_the_agents(notebook: Notebook, master: str) -> None:
    """E8: where agents hold every slot of the session, train says so at once, and what to set; so does an RDD's."""
    notebook.ok(OWN.format(url=master, cores=1, more='.config("spark.task.resource.gpu.amount", 1)'))
    notebook.ok(RESERVE + "\n" + COUNT)
    notebook.ok("df, rdd = spark.range(100), spark.sparkContext.parallelize(range(100))\n%tfcluster start count")
    cell = notebook.fails("%tfcluster train df")
    assert "the 2 agents of a cluster with --gpus hold every slot" in cell.error, cell.all
    assert "spark.executor.cores 1 more" in cell.error, cell.all
    cell = notebook.fails("%tfcluster train rdd")
    assert "spark.task.resource.gpu.amount is 1 in this session" in cell.error and "DataFrame" in cell.error, cell.all
    notebook.ok("%tfcluster shutdown --force\nspark.stop()")
