"""The comm of the JupyterLab extension in a plain ipykernel. It carries messages to Go's engine and back."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from typing import Any

from tfcluster import gate

TARGET = "tfcluster.v1"


def register(shell: Any) -> None:
    """Accepts the extension's comms in a plain ipykernel. Our kernel serves them itself."""
    manager = _manager(shell)
    if manager is not None:
        manager.register_target(TARGET, _opened)


def unregister(shell: Any) -> None:
    """Accepts no more comms."""
    manager = _manager(shell)
    if manager is not None and TARGET in manager.targets:
        manager.unregister_target(TARGET, _opened)


def _manager(shell: Any) -> Any:
    return getattr(getattr(shell, "kernel", None), "comm_manager", None)


def _opened(comm: Any, _: Mapping[str, Any]) -> None:
    """Serves one comm until either side closes it. The kernel calls it between cells."""
    conn = gate.connect()
    gate.send(conn, {"op": "panel"})

    def received(message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the engine has ended, and the reader closes the comm
            gate.send(conn, message["content"]["data"])

    def closed(_: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it is closed already
            conn.shutdown(socket.SHUT_RDWR)

    comm.on_msg(received)
    comm.on_close(closed)
    threading.Thread(target=_carry, args=(conn, comm), name="tfcluster panel", daemon=True).start()


def _carry(conn: socket.socket, comm: Any) -> None:
    """Sends the engine's messages to the front end, also while a cell runs."""
    with conn:
        with contextlib.suppress(OSError, ValueError):
            for message in gate.lines(conn):
                comm.send(message)
        comm.close()
