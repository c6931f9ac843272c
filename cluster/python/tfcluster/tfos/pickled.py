"""Records and results of any Python objects, which travel through a feed as pickles.

Only what a cluster's own TFCluster has pickled is unpickled: it begins with the cluster's mark, a secret that travels
with map_fun. Other data, such as a DataFrame fed by %tfcluster train, is handed on as it is. Functions for Spark are
made inside of functions, so that they are pickled by value: Spark's executors have no package tfcluster.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any


def packer(mark: bytes) -> Callable[[Any], bytes]:
    """Returns a function that returns an object as bytes."""

    def pack(value: Any) -> bytes:
        return mark + pickle.dumps(value)

    return pack


def unpacker(mark: bytes) -> Callable[[Any], Any]:
    """Returns a function that returns the object of a value that has the mark, and others as they are."""

    def unpack(value: Any) -> Any:
        # A row of one column, in inference.
        content = value[0] if isinstance(value, tuple) and len(value) == 1 else value
        if isinstance(content, bytes | bytearray) and content.startswith(mark):
            return pickle.loads(memoryview(content)[len(mark) :])
        return value

    return unpack
