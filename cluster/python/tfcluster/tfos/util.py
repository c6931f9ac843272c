"""What programs use of TensorFlowOnSpark's util."""

from __future__ import annotations

import os
import socket
from typing import Any


def single_node_env(num_gpus: int = 1, worker_index: int = -1, nodes: Any = ()) -> None:
    """Does nothing: a task has its GPUs in CUDA_VISIBLE_DEVICES before it begins."""


def get_ip_address() -> str:
    """Returns this host's address on the route to other hosts."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: the kernel looks up the route
        return str(probe.getsockname()[0])


def find_in_path(path: str, file: str) -> str | bool:
    """Returns the first file of this name in the folders of a search path; False: there is none."""
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder, file)
        if os.path.isfile(candidate):
            return candidate
    return False
