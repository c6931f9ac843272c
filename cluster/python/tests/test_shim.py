"""The notebook's side of the package against an engine that a test plays."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tfcluster
from tfcluster import frontend, gate, notebook, values

PACKAGES = str(Path(__file__).resolve().parent.parent)
Script = Callable[[dict[str, Any], Callable[..., Any]], None]


class Engine:
    """Plays the Go side: each connection is handed to `script(first, exchange)`."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="tfc-test-")
        self.path = os.path.join(self.folder, "gate.sock")
        self.requests: list[dict[str, Any]] = []
        self.script: Script = lambda first, exchange: exchange(op="done", value=None)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            with conn, conn.makefile("rw", encoding="utf-8") as f:
                line = f.readline()
                if not line or json.loads(line)["op"] == "end":
                    return
                first = json.loads(line)
                if first["op"] == "objects":
                    continue
                self.requests.append(first)

                def exchange(answered: bool = False, f: Any = f, **message: Any) -> Any:
                    if message:
                        f.write(json.dumps(message) + "\n")
                        f.flush()
                    return json.loads(f.readline()) if answered else None

                with contextlib.suppress(OSError):
                    self.script(first, exchange)

    def close(self) -> None:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as last:
            last.connect(self.path)
            last.sendall(b'{"op":"end"}\n')
            self._thread.join(10)
        self._listener.close()
        shutil.rmtree(self.folder)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    it = Engine()
    monkeypatch.setattr(gate, "_path", it.path)
    monkeypatch.setattr(frontend, "_shell", None)
    yield it
    it.close()


RUN = {
    "type": "Run",
    "cluster": "c",
    "id": 3,
    "state": "finished",
    "metrics": {"loss": 0.5},
    "history": {"loss": [1, 0.5]},
    "log_dir": "/l",
    "checkpoint_dir": "/k",
    "result": {"a": 1},
    "exit_codes": {"worker:0": 0},
}


def test_api(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    def script(first: dict[str, Any], exchange: Callable[..., Any]) -> None:
        verb = first["argv"][0]
        exchange(op="stream", name="stdout", text=f"{verb} works\n")
        exchange(op="display", id="1", data={"text/plain": "begun\n"}, metadata={}, update=False)
        exchange(op="display", id="1", data={"text/plain": "ended\n"}, metadata={}, update=True)
        if verb == "start":
            got = exchange(
                answered=True,
                op="call",
                id=1,
                fn="program",
                args={"name": "main_fun", "max_bytes": 1 << 20, "big": 1 << 20},
            )
            assert got["value"]["qualname"] == "train"
            got = exchange(answered=True, op="call", id=2, fn="args", args={"name": "args"})
            assert [content["name"] for content in got["contents"]] == ["pickle"]
            got = exchange(answered=True, op="call", id=3, fn="eval", args={"expr": "nope"})
            assert got["ename"] == "NameError"
        value = {
            "reserve": {"type": "Cluster", "name": "c", "executors": 2},
            "start": {**RUN, "state": "running"},
            "wait": RUN,
        }
        exchange(op="done", value=value.get(verb))

    def train(args: Any, ctx: Any) -> None: ...

    engine.script = script
    with tfcluster.reserve(
        workers=2, chief=True, ps_memory="4g", env={"A": "1", "B": None}, gpus=None, py_files=["a", "b"]
    ) as c:
        assert c.name == "c" and c.executors == 2
        run = c.start(train, {"lr": 0.1}, max_restarts=2)
        assert run.state == "running"
        assert run.wait() is run
        assert (run.state, run.result, run.exit_codes, run.history) == (
            "finished",
            {"a": 1},
            {"worker:0": 0},
            {"loss": [1, 0.5]},
        )
        c.logs(n=5)
        c.train()
        c.stop()
        c.reset(hard=True)
        c.status()
        c.stacks("worker:0-1", "chief", all=True)
    argvs = [r["argv"] for r in engine.requests]
    assert argvs == [
        [
            "reserve",
            "--workers=2",
            "--chief",
            "--ps-memory=4g",
            "--env=A=1",
            "--env=B",
            "--py-files=a",
            "--py-files=b",
        ],
        ["start", "--cluster=c", "--max-restarts=2", "--args=args", "main_fun"],
        ["wait", "--cluster=c"],
        ["logs", "--cluster=c", "--lines=5"],
        ["train", "--cluster=c"],
        ["stop", "--cluster=c"],
        ["reset", "--cluster=c", "--hard"],
        ["status", "--cluster=c"],
        ["stacks", "--cluster=c", "--all", "worker:0-1", "chief"],
        ["shutdown", "--cluster=c", "--force"],
    ]
    assert "reserve works\nbegun\nended\n" in capsys.readouterr().out


def test_roles() -> None:
    roles = {
        "worker": {"count": 3, "memory": "4g", "depends_on": ["ps", "db"]},
        "ps": 2,
        "chief": 1,
        "db": {"kind": "sidecar", "command": "serve --all", "end_within": "10s"},
    }
    assert values._argv(values._roles(roles)) == [
        "--workers=3",
        "--worker-memory=4g",
        "--worker-depends-on=ps,db",
        "--ps=2",
        "--chief",
        "--db-kind=sidecar",
        "--db-command=serve --all",
        "--db-end-within=10s",
        "--role=db=1",
    ]
    with pytest.raises(tfcluster.UsageError, match="one chief at most"):
        values._roles({"chief": 2})


def test_errors(engine: Engine) -> None:
    said: dict[str, Any] = {}
    engine.script = lambda first, exchange: exchange(op="done", value=None, error=said)
    said.update(
        ename="RunFailed",
        evalue="worker:1 failed",
        lines=["RunFailed: worker:1 failed", "  why"],
        task="worker:1",
        host="h",
        exit_code=3,
        signal=0,
        tail=["why"],
    )
    with pytest.raises(tfcluster.RunFailed) as e:
        tfcluster.attach("c")
    failed = e.value
    assert (failed.task, failed.host, failed.exit_code, failed.signal, failed.lines) == (
        "worker:1",
        "h",
        3,
        0,
        ["why"],
    )
    assert failed._render_traceback_() == ["RunFailed: worker:1 failed", "  why"]
    for name, kind in {
        "UsageError": tfcluster.UsageError,
        "ClusterError": tfcluster.ClusterError,
        "KeyboardInterrupt": KeyboardInterrupt,
    }.items():
        said.update(ename=name, evalue="text", lines=[f"{name}: text"])
        with pytest.raises(kind, match="text"):
            tfcluster.attach("c")


def test_engine_gone(engine: Engine) -> None:
    engine.script = lambda first, exchange: None
    with pytest.raises(tfcluster.ClusterError, match="gate beside this notebook has ended"):
        tfcluster.attach("c")


def test_interrupts_go_to_the_engine(engine: Engine) -> None:
    got = []

    def script(first: dict[str, Any], exchange: Callable[..., Any]) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            got.append(exchange(answered=True))
        exchange(op="done", value=None, error={"ename": "KeyboardInterrupt", "evalue": "stopped", "lines": []})

    engine.script = script
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="stopped"):
        values._command("wait", {})
    assert got == [{"op": "interrupt"}, {"op": "interrupt"}]
    assert signal.getsignal(signal.SIGINT) is before


def test_result_is_unpickled_or_told() -> None:
    import base64
    import pickle

    run = values.make({**RUN, "result_pickle": base64.b64encode(pickle.dumps((1, 2))).decode()})
    assert run.result == (1, 2)
    run = values.make(
        {**RUN, "result": None, "result_pickle": base64.b64encode(b"broken").decode(), "result_repr": "<X>"}
    )
    assert run.result == "<X>"
    assert run.results == {}
    said = {
        "worker:10": {"result": 10},
        "worker:2": {"result": None},
        "chief:0": {"result": None, "result_repr": "<X>"},
    }
    run = values.make({**RUN, "results": said})
    assert list(run.results.items()) == [("chief:0", "<X>"), ("worker:2", None), ("worker:10", 10)]
    assert repr(run) == "Run(id=3, state='finished', loss=0.5)"


def test_transform() -> None:
    asks = {
        "%tfcluster reserve?\n": "%tfcluster help reserve\n",
        "%tfcluster reserve ?\n": "%tfcluster help reserve\n",
        "%tfcluster?\n": "%tfcluster help\n",
        "%tfcluster start a.py what?\n": "%tfcluster start a.py what? #\n",
        "%tfcluster status\n": "%tfcluster status\n",
        "x?\n": "x?\n",
    }
    for line, want in asks.items():
        assert notebook._transform([line]) == [want]
    assert notebook._transform(["%%bash\n", "%tfcluster x?\n"]) == ["%%bash\n", "%tfcluster x?\n"]
    assert notebook._transform(["%%tfcluster start\n", "%tfcluster x?\n"]) == [
        "%%tfcluster start\n",
        "%tfcluster x?\n",
    ]


def test_in_ipython(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    def script(first: dict[str, Any], exchange: Callable[..., Any]) -> None:
        if first["op"] == "complete":
            assert first["code"].endswith("sta")
            exchange(
                op="done",
                value={"matches": ["start", "status"], "start": first["cursor"] - 3, "end": first["cursor"]},
            )
        elif first["line"].startswith("status"):
            got = exchange(answered=True, op="call", id=1, fn="expand", args={"names": ["local", "world"]})
            exchange(op="done", value={**RUN, "program": json.dumps(got["value"])})
        else:
            exchange(
                op="done",
                value=None,
                error={"ename": "UsageError", "evalue": "bad", "lines": ["UsageError: bad"]},
            )

    engine.script = script
    shell = InteractiveShell()
    try:
        tfcluster.load_ipython_extension(shell)
        assert capsys.readouterr().out == ""
        shell.run_cell("world = 1\ndef f():\n    local = 2\n    r = %tfcluster status {x} $y\n    return r\nr = f()")
        run = shell.user_ns["r"]
        assert isinstance(run, tfcluster.Run) and json.loads(run.program) == {"local": "2", "world": "1"}
        assert engine.requests[-1]["line"] == "status {x} $y"
        shell.run_cell("%%tfcluster start a\nbody $x {y}")
        assert engine.requests[-1]["cell"] == "body $x {y}\n" or engine.requests[-1]["cell"] == "body $x {y}"
        assert capsys.readouterr().out.strip().endswith("UsageError: bad")
        shell.run_cell("%tfcluster reserve?")
        assert engine.requests[-1]["line"] == "help reserve"
        assert shell.complete("sta", "%tfcluster sta", 14)[1] == ["start", "status"]
        notebook._store(5, json.dumps(RUN))
        assert shell.user_ns["Out"][5] is shell.user_ns["_"] is shell.user_ns["_5"]
    finally:
        tfcluster.unload_ipython_extension(shell)
        shell.history_manager.end_session()


def test_environment_is_not_inherited(engine: Engine) -> None:
    """In a kernel of ours: nothing is printed, and programs started from it know nothing of the gate."""
    code = (
        "import os, sys\nfrom IPython.core.interactiveshell import InteractiveShell\nimport tfcluster\n"
        "shell = InteractiveShell()\nshell.kernel = None\ntfcluster.load_ipython_extension(shell)\n"
        "print(os.environ.get('TFCLUSTER_GATE'), os.environ.get('PYTHONPATH'))\n"
        "import tfcluster.gate\nassert tfcluster.gate._path\n"
        "shell.history_manager.end_session()\nos._exit(0)\n"
    )
    engine.script = lambda first, exchange: None
    env = {**os.environ, "TFCLUSTER_GATE": engine.path, "PYTHONPATH": PACKAGES + os.pathsep + "/elsewhere"}
    done = subprocess.run([sys.executable, "-uc", code], env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("None /elsewhere\n", 0), done.stderr


def test_engine_is_started(tmp_path: Path) -> None:
    """A plain Python starts the engine, which ends with it."""
    fake = tmp_path / "tfcluster"
    fake.write_text(
        f"#!{sys.executable}\nimport json, os, socket, sys\n"
        f"path = {str(tmp_path / 'g.sock')!r}\ns = socket.socket(socket.AF_UNIX); s.bind(path); s.listen()\n"
        "life = socket.socket(fileno=3)\nlife.sendall(json.dumps({'gate': path}).encode() + b'\\n')\n"
        "c, _ = s.accept()\nc.recv(1000)\n"
        "value = {'type': 'Cluster', 'name': ' '.join(sys.argv[1:])}\n"
        "c.sendall(json.dumps({'op': 'done', 'value': value}).encode() + b'\\n')\n"
        "assert life.recv(1) == b''\nos.unlink(path)\n"
    )
    fake.chmod(0o755)
    code = "import tfcluster; print(tfcluster.reserve().name)"
    env = {**os.environ, "TFCLUSTER_BINARY": str(fake), "PYTHONPATH": PACKAGES}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == (f"gate --python {sys.executable}\n", 0), done.stderr
    assert not (tmp_path / "g.sock").exists()
    missing = {**env, "TFCLUSTER_BINARY": "", "PATH": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", code], env=missing, capture_output=True, text=True, timeout=60)
    assert "there is no program tfcluster on PATH" in done.stderr
    fake.write_text("#!/bin/sh\nexit 3\n")
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert "gate ended before it was ready: what it wrote is in the kernel's output" in done.stderr
    assert f'try "{fake} version" in a shell' in done.stderr


def test_engine_that_was_killed_is_started_again(tmp_path: Path) -> None:
    fake = tmp_path / "tfcluster"
    fake.write_text(
        f"#!{sys.executable}\nimport json, os, socket\n"
        f"path = {str(tmp_path)!r} + f'/{{os.getpid()}}.sock'\ns = socket.socket(socket.AF_UNIX)\n"
        "s.bind(path); s.listen()\n"
        "life = socket.socket(fileno=3)\nlife.sendall(json.dumps({'gate': path}).encode() + b'\\n')\n"
        "c, _ = s.accept()\nc.recv(1000)\n"
        "value = {'type': 'Cluster', 'name': str(os.getpid())}\n"
        "c.sendall(json.dumps({'op': 'done', 'value': value}).encode() + b'\\n')\nlife.recv(1)\n"
    )
    fake.chmod(0o755)
    code = (
        "import os, signal, tfcluster\nfrom tfcluster import gate\n"
        "first = int(tfcluster.reserve().name)\nos.kill(first, signal.SIGKILL)\n"
        "os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)\n"
        "print(int(tfcluster.reserve().name) != first)\n"
    )
    env = {**os.environ, "TFCLUSTER_BINARY": str(fake), "PYTHONPATH": PACKAGES}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
