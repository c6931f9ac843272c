"""tfcluster: distributed TensorFlow from a notebook.

In a notebook:

    %load_ext tfcluster          # not needed with the kernel Python 3 (TFCluster)
    %tfcluster help

or the same in Python:

    with tfcluster.reserve(workers=2) as c:
        run = c.start(main_fun, args)
        run.wait()

In the program, main_fun(args, ctx) gets its context as ctx; a script calls tfcluster.context().
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfcluster import context
    from tfcluster.distributed_optimizer import DistributedOptimizer
    from tfcluster.errors import ClusterError, RunFailed, UsageError
    from tfcluster.keras_group import broadcast_model
    from tfcluster.values import Cluster, Run, attach, reserve

__all__ = [
    "Cluster",
    "ClusterError",
    "DistributedOptimizer",
    "Run",
    "RunFailed",
    "UsageError",
    "attach",
    "broadcast_model",
    "context",
    "reserve",
]

# Tasks import this package too, without the modules for the notebook.
_HOMES = {
    "Cluster": "tfcluster.values",
    "Run": "tfcluster.values",
    "attach": "tfcluster.values",
    "reserve": "tfcluster.values",
    "ClusterError": "tfcluster.errors",
    "RunFailed": "tfcluster.errors",
    "UsageError": "tfcluster.errors",
    "DistributedOptimizer": "tfcluster.distributed_optimizer",
    "broadcast_model": "tfcluster.keras_group",
    "_store": "tfcluster.notebook",
}


def __getattr__(name: str) -> Any:
    if name == "context":
        return importlib.import_module("tfcluster.context")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def load_ipython_extension(shell: Any) -> None:
    """Registers %tfcluster and %%tfcluster, for %load_ext tfcluster."""
    importlib.import_module("tfcluster.notebook").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Unregisters %tfcluster and %%tfcluster, for %unload_ext tfcluster."""
    importlib.import_module("tfcluster.notebook").unload(shell)
