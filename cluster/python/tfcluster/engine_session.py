"""The SparkSession of a cluster, for the notebook."""

from __future__ import annotations

import contextlib
from typing import Any

from tfcluster import gate
from tfcluster.errors import ClusterError, raised


def of_cluster(cluster: str) -> Any:
    """Returns the SparkSession of a cluster on Spark."""
    with contextlib.closing(gate.connect()) as conn:
        conn.settimeout(60)
        gate.send(conn, {"op": "engine", "cluster": cluster})
        for message in gate.lines(conn):
            if message.get("error"):
                raise raised(message["error"])
            found = message["value"]
            if found.get("name"):
                return _lent(cluster, found["socket"])
            from pyspark.sql import SparkSession

            return SparkSession.builder.remote(found["remote"]).create()
    raise ClusterError(
        "the process tfcluster gate beside this notebook has ended; clusters keep running: run this again, or "
        "restart the kernel"
    )


def _lent(cluster: str, socket: str) -> Any:
    """Returns the session of this process that the cluster was reserved on."""
    from tfcluster import spark_host

    session = spark_host.borrowed(socket)
    if session is None:
        raise ClusterError(
            f"cluster {cluster} is on the SparkSession of another process: use that session there, or make one here"
        )
    return session
