"""TensorFlowOnSpark's TFParallel: the same function on each executor, by itself."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from tfcluster import values
from tfcluster.tfos import TFCluster


def run(sc: Any, map_fn: Callable[[Any, Any], Any], tf_args: Any, num_executors: int, use_barrier: bool = True) -> None:
    """Runs map_fn(tf_args, ctx) on num_executors executors and waits for all; raises RunFailed if one fails.

    The tasks know nothing of each other but ctx.worker_num and ctx.num_workers. use_barrier has no meaning: all have
    their slots before the first begins.
    """
    TFCluster.context_of(sc)
    name = TFCluster.new_name()
    options = {"backend": "spark", "session": sc, "workers": num_executors, "framework": "none", "name": name}
    with values.reserve(**options) as cluster:
        cluster.start(TFCluster.main_fun_of(map_fn, {**TFCluster._place(sc), "mark": secrets.token_bytes(16)}), tf_args)
        cluster.wait()
