"""Serve TensorBoard on a unix socket, which its own command line cannot.

usage: python - SOCKET LOGDIR < serve.py; prints one line, "ready", once it listens. What anyone
else prints goes to stderr.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tensorboard import default, program
from werkzeug.serving import WSGIRequestHandler, make_server


class Keep:
    """A server class for TensorBoard that only stores the application."""

    application: Any = None

    def __init__(self, application: Any, _flags: Any) -> None:
        Keep.application = application

    def serve_forever(self) -> None:
        """Do nothing: main serves."""

    def get_url(self) -> str:
        """Return no address."""
        return ""

    def print_serving_message(self) -> None:
        """Print nothing."""


class Quiet(WSGIRequestHandler):
    """A request handler that logs no requests."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass

    def address_string(self) -> str:
        return "proxy"


def main(socket: str, logdir: str) -> None:
    ready = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    board = program.TensorBoard(default.get_plugins(), server_class=Keep)
    flags = ["--logdir", logdir, "--load_fast", "false", "--reload_interval", "2"]
    board.configure(argv=["tensorboard", *flags])
    board._make_server()
    mask = os.umask(0o177)
    server = make_server(f"unix://{socket}", 0, Keep.application, threaded=True, request_handler=Quiet)
    os.umask(mask)  # plugins create folders, which need their x
    with ready:
        print("ready", file=ready)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
