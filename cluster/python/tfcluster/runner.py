"""The run of one task's program in this process.

It begins in a fork of the zygote (run_and_exit), or in a fresh interpreter:

    python -m tfcluster.runner CONTROL_FD SPEC_FD

The specification is JSON; large values are in files:

    task        "worker:1"
    kind        "function" (a pickle), "script" or "cell" (source text)
    name        to show: main_fun, train.py, Cell In[7]
    body        path of the pickle or source text
    args        path of the pickled --args object, or ""
    words       the program's arguments
    modules     path of a zip of Python modules, or ""
    modules_dir folder to hold its content, named by its digest
    function    the function of a script to call, or ""
    path        the script's path as the user gave it
    requested   the time of the launch, seconds since 1970
    absent      the notebook's folder if the task does not start in it, or ""
    options     the run's RunOptions, by their names in cluster.proto; missing ones are 0, False or ""
    context     attributes of ctx: see tfcluster.context
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import faulthandler
import inspect
import json
import linecache
import os
import pickle
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tfcluster import context, hints, hooks
from tfcluster.channel import Channel
from tfcluster.manifest import Manifest
from tfcluster.modules import unpack
from tfcluster.stacks import Stacks
from tfcluster.stopping import Stopper
from tfcluster.tfos import alias

MAX_PICKLED_RESULT = 3 << 20  # bytes; limited by a message to the coordinator
MAX_JSON_RESULT = 1 << 19
TOO_BIG = "what the program returned has {} MB pickled: only its repr is kept; write it to a file under ctx.dir"
LEAVE_LIMIT = 10.0  # seconds for a failed program's threads and exit handlers
MAX_TEXT = 1 << 16  # characters of a traceback

_CELL = re.compile(r"Cell In\[\d+\]")  # the file name of a notebook's cell
_CELL_FILE = re.compile(rf'^([ |]*)File "({_CELL.pattern})", line', re.MULTILINE)
_HERE = os.path.dirname(os.path.abspath(__file__))


def main(argv: list[str]) -> None:
    """Runs a task as the entry point of a new interpreter."""
    control_fd, spec_fd = int(argv[1]), int(argv[2])
    os.set_inheritable(control_fd, False)
    with os.fdopen(spec_fd, "rb") as f:
        spec = json.load(f)
    run_and_exit(spec, control_fd)


def run_and_exit(spec: Mapping[str, Any], control_fd: int) -> None:
    """Runs the program and ends the process with its exit code; never returns."""
    channel = Channel(socket.socket(fileno=control_fd))
    code = 1
    try:
        code = Task(spec, channel).run()
    finally:
        if code != 0:
            end_within(LEAVE_LIMIT, code)
        code = leave(code)
        with contextlib.suppress(BaseException):
            channel.flush()
        os._exit(code)


def end_within(seconds: float, code: int) -> None:
    """Ends this process after seconds: a failed program may wait at exit for peers that wait for it (JAX)."""

    def end() -> None:
        with contextlib.suppress(BaseException):
            print(
                f"tfcluster: ended {seconds:g} s after the program had failed: an exit handler waits",
                file=sys.stderr,
                flush=True,
            )
        os._exit(code)

    clock = threading.Timer(seconds, end)
    clock.daemon = True
    clock.start()


def leave(code: int) -> int:
    """Joins threads, calls atexit functions and flushes, as an interpreter at exit; returns the exit code."""
    for end in (threading._shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):
        try:
            end()
        except SystemExit as e:
            code = exit_code(e)
        except BaseException:
            with contextlib.suppress(BaseException):
                traceback.print_exc()
    return code


class Task:
    """One task in this process."""

    def __init__(self, spec: Mapping[str, Any], channel: Channel) -> None:
        self.spec = spec
        self.channel = channel
        self.options: Mapping[str, Any] = spec.get("options") or {}
        self.context = context.Context({**self.options, **(spec.get("context") or {})}, channel)
        self.manifest = Manifest(channel, keeps_sources=self.context.is_chief)
        self._folder = os.getcwd()  # the task's initial folder

    def run(self) -> int:
        """Runs the program, reports its outcome to the agent and returns the exit code."""
        try:
            self._prepare()
            program = self._load()
            self.manifest.start()
            self._entered()
            self.manifest.sources()
            result = program()
            self.channel.activity.program_ended()
            self._result(result, self.context.end_feed(result))
            return 0
        except SystemExit as e:
            if e.code is not None and not isinstance(e.code, int):
                print(e.code, file=sys.stderr)
            return exit_code(e)
        except KeyboardInterrupt as e:
            self._failed(e)
            return 128 + signal.SIGINT
        except BaseException as e:
            self._failed(e)
            return 1
        finally:
            self.manifest.end()

    # ------------------------------------------------------------ before

    def _prepare(self) -> None:
        open_streams()
        faulthandler.enable()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stacks = Stacks(self.channel)
        stacks.install()
        Stopper(self.channel, self.context.end_watching).install()  # an evaluator evaluates the last checkpoint first
        stacks.register()
        sys.path[:] = [p for p in sys.path if p and os.path.abspath(p) != _HERE]
        if modules := self.spec.get("modules"):
            folder = self.spec["modules_dir"]
            unpack(modules, folder)
            sys.path.insert(0, folder)
            self.manifest.modules(folder)
        alias.install()
        context.set_current(self.context)
        self._adapt()

    def _adapt(self) -> None:
        hooks.when_imported("tensorflow.python.training.server_lib", self._adapt_server)
        if self.options.get("keras_patch"):
            from tfcluster import keras_patch

            keras_patch.install()
        if self.options.get("callback"):
            from tfcluster import progress, progress_trainers

            progress.install(self.channel)
            progress_trainers.install(self.channel)

    def _adapt_server(self, module: ModuleType) -> None:
        """Makes tf.distribute.Server.join() report that the program waits in it, and lets SIGTERM end it."""
        join = module.Server.join

        def wait(server: Any) -> None:
            self.channel.send("server_join")
            waiting = threading.Thread(target=join, args=(server,), name="tf-server-join", daemon=True)
            waiting.start()
            while waiting.is_alive():
                waiting.join(0.5)  # a signal ends it, unlike the join in C++

        wait.__doc__ = join.__doc__
        module.Server.join = wait

    # ------------------------------------------------------- the program

    def _load(self) -> Callable[[], Any]:
        words = list(self.spec.get("words") or [])
        kind, name = self.spec["kind"], str(self.spec.get("name") or "program")
        main_module = ModuleType("__main__")
        sys.modules["__main__"] = main_module
        if kind == "function":
            sys.argv = [name, *words]
            function = load_program(self.spec["body"])
            self.manifest.function(function)
            return self._function(function)
        with open(self.spec["body"], encoding="utf-8") as f:
            source = f.read()
        self.manifest.source(kind if kind == "cell" else name.partition(":")[0], source)
        path = str(self.spec.get("path") or "")
        filename = os.path.abspath(path) if kind == "script" and path else f"<{name}>"
        if kind == "cell" and _CELL.fullmatch(name):
            filename, source = name, "\n" + source  # line 1 is the magic
        sys.argv = [path or name, *words]
        remember_source(filename, source)
        main_module.__dict__.update({"__builtins__": __builtins__, "__loader__": SourceLoader(source)})
        if kind == "script":
            main_module.__file__ = filename
        function = str(self.spec.get("function") or "")
        if kind == "script" and path and os.path.dirname(filename) not in sys.path:
            sys.path.insert(1 if self.spec.get("modules") else 0, os.path.dirname(filename))
        return lambda: self._source(main_module, source, filename, function)

    def _source(self, module: ModuleType, source: str, filename: str, function: str) -> Any:
        if function:  # do not run `if __name__ == "__main__":`
            module.__name__ = os.path.splitext(os.path.basename(filename))[0]
            sys.modules[module.__name__] = module
        exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
        if not function:
            return None
        found = getattr(module, function, None)
        if not callable(found):
            raise AttributeError(f"{os.path.basename(filename)} has no function {function!r}")
        return self._function(found)()

    def _function(self, function: Callable[..., Any]) -> Callable[[], Any]:
        if self.spec.get("args"):
            args: Any = unpickle(self.spec["args"])
            self.manifest.arguments(args)
        else:
            args = list(self.spec.get("words") or [])
        offered = (args, self.context)
        return lambda: function(*offered[: wanted(function)])

    # ------------------------------------------------------------- after

    def _entered(self) -> None:
        self.channel.send("entered", seconds=max(0.0, time.time() - float(self.spec.get("requested") or time.time())))

    def _result(self, value: Any, evaluation: Mapping[str, Any]) -> None:
        """Sends main_fun's value and an evaluation's metrics to the agent."""
        self.channel.flush()
        if value is not None:
            self.channel.send("result", **self._encoded(value), **evaluation)
        elif evaluation:
            self.channel.send("result", json="null", **evaluation)

    def _encoded(self, value: Any) -> dict[str, Any]:
        """Returns the value as its repr and, if possible, as JSON and as a pickle."""
        said: dict[str, Any] = {"repr": shorten(safe_repr(value))}
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            as_json = json.dumps(value, allow_nan=False, default=plain)
            if len(as_json) <= MAX_JSON_RESULT:
                said["json"] = as_json
        try:
            pickled = dump(value)
            if len(pickled) <= MAX_PICKLED_RESULT:
                said["pickled_b64"] = base64.b64encode(pickled).decode()
            else:
                self.channel.send("note", text=TOO_BIG.format(len(pickled) >> 20))
        except Exception as e:
            self.channel.send("note", text=f"what the program returned cannot be pickled ({e}): only its repr is kept")
        return said

    def _failed(self, error: BaseException) -> None:
        error.__traceback__ = hints.user_frames(error)
        host = str((self.spec.get("context") or {}).get("host") or "")
        if hint := hints.missing_file(error, str(self.spec.get("absent") or ""), self._folder, host):
            error.add_note(hint)
        lines = [name_cells(part) for part in traceback.format_exception(error)]
        sys.stdout.flush()
        print("".join(lines), end="", file=sys.stderr, flush=True)
        summary = "".join(traceback.format_exception_only(error)).strip()
        self.channel.flush()
        self.channel.send("exception", exception=shorten(summary, 4000), traceback=shorten("".join(lines), MAX_TEXT))


def open_streams() -> None:
    """Opens text streams for descriptors 0, 1 and 2: in a fork the old ones are of the zygote's log file."""
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def load_program(path: str) -> Callable[..., Any]:
    """Unpickles a program: a function, or {"function": …, "sources": {file name: text}}.

    The sources of the notebook's cells are for tracebacks and for AutoGraph.
    """
    program = unpickle(path)
    if isinstance(program, Mapping):
        for filename, text in dict(program.get("sources") or {}).items():
            remember_source(str(filename), str(text))
        program = program["function"]
    return program


def unpickle(path: str) -> Any:
    """Unpickles a file."""
    with open(path, "rb") as f:
        return pickle.load(f)


def dump(value: Any) -> bytes:
    """Pickles a value, with cloudpickle if installed."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(value)
    return cloudpickle.dumps(value)


def plain(value: Any) -> Any:
    """Encodes NumPy's scalars and small arrays for JSON."""
    convert = getattr(value, "tolist", None)
    if convert is None or getattr(value, "size", 0) > 10_000:
        raise TypeError(f"{type(value).__name__} cannot be represented in JSON")
    return convert()


def wanted(function: Callable[..., Any]) -> int:
    """Returns the number of arguments of (args, ctx) that a function takes: 0, 1 or 2."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    return min(2, sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters))


class SourceLoader:
    """A loader that returns the source of a module without a file on this machine."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, _name: str) -> str:
        return self._source


def remember_source(filename: str, source: str) -> None:
    """Registers the source of code without a file here, for tracebacks and inspect."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


def name_cells(text: str) -> str:
    """Returns a formatted traceback that names the notebook's cells as IPython does: Cell In[7], line 3."""
    return _CELL_FILE.sub(r"\1\2, line", text)


def exit_code(error: SystemExit) -> int:
    """Returns the exit code of a SystemExit."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def safe_repr(value: Any) -> str:
    """Returns a repr, even if the object's raises an error."""
    try:
        return repr(value)
    except Exception as e:
        return f"<{type(value).__name__}: repr raised {type(e).__name__}>"


def shorten(text: str, limit: int = 2000) -> str:
    """Returns text, shortened in the middle to limit characters."""
    if len(text) <= limit:
        return text
    half = limit // 2 - 2
    return f"{text[:half]} … {text[-half:]}"


if __name__ == "__main__":
    main(sys.argv)
