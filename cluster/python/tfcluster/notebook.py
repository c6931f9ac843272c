"""%tfcluster in IPython: the magic, its completion and help, and the thread that answers for objects."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any

from tfcluster import frontend, gate, hints, panel, values
from tfcluster.objects import Objects

_ASKS = re.compile(r"^(\s*)%{1,2}tfcluster(\s+(\w+))?\s*\?+\s*$")
_LINE = re.compile(r"^\s*%{1,2}tfcluster\b")
_RETRY = 1.0  # seconds between two attempts to connect to the engine

_over: threading.Event | None = None  # ends the objects thread


def load(shell: Any) -> None:
    """Registers everything without output: the kernel loads it before the first cell."""
    global _over
    from IPython.core.magic import no_var_expand

    if frontend.shell() is shell:
        return
    frontend.use(shell)
    ours = gate.adopt_environment()
    _magic.__doc__ = _DOC
    shell.register_magic_function(no_var_expand(_magic), "line_cell", "tfcluster")
    shell.set_hook("complete_command", _complete, re_key=r"([^%=]*=\s*)?%{1,2}tfcluster")
    if _transform not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(_transform)
    shell.events.register("post_run_cell", _hint)
    if not ours:
        _serve_plain_kernel(shell)
        panel.register(shell)
        return
    _over = threading.Event()
    threading.Thread(target=_answer, args=(shell, _over), name="tfcluster-objects", daemon=True).start()


def unload(shell: Any) -> None:
    """Unregisters the magic; an engine started here ends, clusters keep running."""
    if _over is not None:
        _over.set()
    shell.magics_manager.magics["line"].pop("tfcluster", None)
    shell.magics_manager.magics["cell"].pop("tfcluster", None)
    if _transform in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(_transform)
    with contextlib.suppress(ValueError):  # it was not loaded
        shell.events.unregister("post_run_cell", _hint)
    panel.unregister(shell)
    gate.stop()
    frontend.use(None)


_DOC = """%tfcluster VERB [options] [words]: distributed TensorFlow from a cell.

%tfcluster help lists the verbs, %tfcluster VERB ? shows one.
"""


def _magic(line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> Any:
    sys.stdout.flush()
    sys.stderr.flush()
    hook = getattr(frontend.shell(), "displayhook", None)
    request = {"op": "magic", "line": line, "cell": cell, "count": getattr(hook, "prompt_count", 0)}
    objects = Objects(frontend.user_namespace(), local_ns)
    return values.shown(gate.command(request, objects, frontend.Screen()))


_magic.needs_local_scope = True  # type: ignore[attr-defined]


def _transform(lines: list[str]) -> list[str]:
    """Keeps IPython from treating ? at the end of our lines as a question about the last word."""
    if lines and lines[0].startswith("%%") and not _LINE.match(lines[0]):
        return lines
    body = bool(lines) and lines[0].startswith("%%")
    out = []
    for n, line in enumerate(lines):
        text = line.rstrip("\n")
        if (n and body) or not _LINE.match(text) or not text.rstrip().endswith("?"):
            out.append(line)
            continue
        asked = _ASKS.match(text)
        if asked:
            out.append(f"{asked[1]}%tfcluster help {asked[3] or ''}".rstrip() + "\n")
        else:
            out.append(text + " #\n")
    return out


def _hint(result: Any) -> None:
    """Shows below a cell's traceback how to get a module that it misses."""
    if hint := hints.missing_module(result.error_in_exec):
        print(hint, file=sys.stderr)


def _complete(_shell_again: Any, event: Any) -> list[str]:
    """Returns completions after %tfcluster."""
    line = getattr(event, "text_until_cursor", None) or event.line
    with contextlib.suppress(Exception), contextlib.closing(gate.connect()) as conn:
        conn.settimeout(5)
        gate.send(conn, {"op": "complete", "code": line, "cursor": len(line)})
        objects = Objects(frontend.user_namespace())
        for message in gate.lines(conn):
            if message["op"] == "call":
                gate.answer(conn, message, objects)
            elif message["op"] == "done":
                found = message.get("value") or {}
                keep = line[found.get("start", len(line)) :]
                symbol = str(event.symbol)
                return [symbol[: len(symbol) - len(keep)] + m for m in found.get("matches") or ()]
    return []


def _answer(shell: Any, over: threading.Event) -> None:
    """Runs the objects thread: answers Go until over is set, and reconnects after errors."""
    while not over.is_set():
        with contextlib.suppress(Exception), contextlib.closing(gate.connect(start=False)) as conn:
            gate.send(conn, {"op": "objects"})
            for message in gate.lines(conn):
                if over.is_set():
                    return
                if message["op"] == "call":
                    gate.answer(conn, message, Objects(shell.user_ns))
        over.wait(_RETRY)


def _serve_plain_kernel(shell: Any) -> None:
    """Sends a plain ipykernel's name to the engine, and notifies the engine of the kernel's shutdown."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return
    with contextlib.suppress(Exception):
        from ipykernel.connect import get_connection_file

        gate.own(os.path.basename(get_connection_file()))
    usual = kernel.do_shutdown

    def do_shutdown(restart: bool) -> Any:
        if gate.started():
            with contextlib.suppress(Exception), contextlib.closing(gate.connect()) as conn:
                conn.settimeout(5)
                gate.send(conn, {"op": "shutdown", "restart": restart})
                conn.recv(1)
        return usual(restart)

    kernel.do_shutdown = do_shutdown


def _store(number: int, text: str) -> None:
    """Stores the value of a cell, which Go ran, as Out[number] and _. The kernel calls it silently."""
    shell = frontend.shell()
    if shell is None:
        return
    value = values.from_json(text)
    if value is None:
        return
    count = shell.execution_count
    ahead = count - shell.displayhook.prompt_count  # 1 or 0, by IPython's version
    try:
        shell.execution_count = number + ahead
        shell.displayhook.update_user_ns(value)
    finally:
        shell.execution_count = count
