"""Starts the kernel of a suite, with encrypted channels where $TRANSPORT_ENCRYPTION says so."""

import os
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

POLICY = os.environ.get("TRANSPORT_ENCRYPTION", "")


def start(**options: Any) -> tuple[KernelManager, BlockingKernelClient]:
    """Start a kernel as start_new_kernel does; raise an exception if it should be encrypted and is not."""
    if POLICY not in ("", "disabled"):  # an old jupyter_client does not know the option
        options["transport_encryption"] = POLICY
    km, kc = start_new_kernel(**options)
    if POLICY == "required" and km.curve_publickey is None:
        km.shutdown_kernel(now=True)
        raise RuntimeError("the channels are not encrypted")
    return km, kc
