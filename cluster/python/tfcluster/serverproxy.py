"""The wheel's entry point in the group jupyter_serverproxy_servers.

By it jupyter-server-proxy starts the broker for TensorBoard. `tfcluster install` writes the same to the
server's configuration (jupyter-ext/serverconfig.go).
"""

from __future__ import annotations

from typing import Any

from tfcluster import program


def broker() -> dict[str, Any]:
    """Returns the fields of jupyter_server_proxy.config.ServerProcess."""
    path = program.installed()
    if not path:
        raise FileNotFoundError(
            "the program tfcluster is missing beside its package: pip install --force-reinstall --no-deps WHEEL"
        )
    return {
        # The words are formatted: braces in the path must be doubled.
        "command": [path.replace("{", "{{").replace("}", "}}"), "broker", "--socket", "{unix_socket}"],
        "unix_socket": True,
        "timeout": 20,
        "launcher_entry": {"enabled": False},
    }
