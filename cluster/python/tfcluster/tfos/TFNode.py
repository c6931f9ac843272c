"""TensorFlowOnSpark's TFNode: the feed of a task, and paths."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from typing import Any

from tfcluster.tfos import pickled

_SCHEMES = ("adl://", "file://", "hdfs://", "oss://", "s3://", "s3a://", "s3n://", "swift://", "viewfs://", "wasb://")


def hdfs_path(ctx: Any, path: str) -> str:
    """Returns a path with its scheme: one without is on ctx.defaultFS.

    A relative path is below /user/NAME on hdfs: and viewfs:, and below ctx.working_dir on file:.
    """
    if path.startswith(_SCHEMES):
        return path
    if path.startswith("/"):
        return str(ctx.defaultFS) + path
    if ctx.defaultFS.startswith(("hdfs://", "viewfs://")):
        return f"{ctx.defaultFS}/user/{getpass.getuser()}/{path}"
    if ctx.defaultFS.startswith("file://"):
        return f"{ctx.defaultFS}/{ctx.working_dir[1:]}/{path}"
    return f"{ctx.defaultFS}/{path}"


def start_cluster_server(ctx: Any, num_gpus: int = 1, rdma: bool = False) -> Any:
    """Returns a tf.train.ClusterSpec and a tf.distribute.Server of this task."""
    return ctx.start_cluster_server(num_gpus, rdma)


def release_port(ctx: Any) -> None:
    """Does nothing: TensorFlow shares the port that is held for the task."""


class DataFeed:
    """The records of TFCluster.train or inference for one task, as they were in the RDD.

    next_batch(n)        a list of up to n records, or with input_mapping a dict of lists: {tensor: values}, where the
                         columns of a record have the order of input_mapping's sorted names
    should_stop()        whether the feed has no more records
    batch_results(list)  one result for each record of a batch, any objects
    terminate()          reads no more
    """

    def __init__(
        self,
        mgr: Any,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> None:
        self._feed = mgr.ctx.get_data_feed(train_mode)
        self._pack, self._unpack = pickled.packer(mgr.mark), pickled.unpacker(mgr.mark)
        self._tensors = [tensor for _, tensor in sorted(input_mapping.items())] if input_mapping is not None else None
        self.train_mode = train_mode

    @property
    def done_feeding(self) -> bool:
        """Reports whether the feed has no more records."""
        return self.should_stop()

    def next_batch(self, batch_size: int) -> Any:
        """Returns the next records."""
        records = [self._unpack(record) for record in self._feed.next_batch(batch_size)]
        if self._tensors is None:
            return records
        return {tensor: [record[n] for record in records] for n, tensor in enumerate(self._tensors)}

    def should_stop(self) -> bool:
        """Reports whether the feed has no more records; waits until that is known."""
        return bool(self._feed.should_stop())

    def batch_results(self, results: Sequence[Any]) -> None:
        """Gives the results of a batch in inference."""
        self._feed.batch_results([self._pack(result) for result in results])

    def terminate(self) -> None:
        """Ends the reading: the source stops as soon as no worker reads."""
        self._feed.terminate()
