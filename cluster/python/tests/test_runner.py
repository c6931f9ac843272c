"""What the runner does around a program, in fresh interpreters."""

import json
import linecache
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from conftest import Agent

from tfcluster import modules, runner, shipping


class Ran:
    def __init__(self, code: int, stdout: str, stderr: str, messages: list[dict]) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr
        self.messages = messages

    def said(self, op: str) -> dict:
        return next(m for m in self.messages if m["op"] == op)


def start(tmp_path: Path, body: str | bytes, begun: tuple[str, ...] = ("-m", "tfcluster.runner"), **spec):
    import socket

    path = tmp_path / "body"
    path.write_bytes(body if isinstance(body, bytes) else textwrap.dedent(body).encode())
    (tmp_path / "spec").write_text(json.dumps({"kind": "cell", "name": "cell [3]", "body": str(path), **spec}))
    ours, theirs = socket.socketpair()
    with open(tmp_path / "spec") as f:
        process = subprocess.Popen(
            [sys.executable, "-P", *begun, str(theirs.fileno()), str(f.fileno())],
            pass_fds=(theirs.fileno(), f.fileno()),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    theirs.close()
    return process, Agent(ours)


def finish(process, agent: Agent) -> Ran:
    stdout, stderr = process.communicate(timeout=120)
    messages = [json.loads(line) for line in agent._lines]
    agent.close()
    return Ran(process.returncode, stdout, stderr, messages)


def run(tmp_path: Path, body: str | bytes, **spec) -> Ran:
    return finish(*start(tmp_path, body, **spec))


def pickled(source: str, name: str = "main_fun") -> bytes:
    cloudpickle = pytest.importorskip("cloudpickle")
    namespace: dict = {"__name__": "__main__"}
    exec(textwrap.dedent(source), namespace)
    return cloudpickle.dumps(namespace[name])


def test_cell(tmp_path: Path) -> None:
    ran = run(tmp_path, "import sys\nprint(__name__, sys.argv, flush=True)\nprint('ü')", words=["--a", "b"])
    assert (ran.code, ran.stdout) == (0, "__main__ ['cell [3]', '--a', 'b']\nü\n"), ran.stderr
    assert ran.said("entered")["seconds"] >= 0


def test_options_are_in_ctx(tmp_path: Path) -> None:
    show = """
        import sys, tfcluster
        ctx = tfcluster.context()
        print(ctx.mode, ctx.epochs, ctx.working_dir, "tfcluster.keras_patch" in sys.modules)
    """
    assert run(tmp_path, show).stdout == f"train 1 {tmp_path} False\n"
    options = {"mode": "evaluate", "epochs": 7, "working_dir": "/notebook's", "keras_patch": True}
    ran = run(tmp_path, show, options=options, context={"working_dir": "/task's"})
    assert (ran.code, ran.stdout) == (0, "evaluate 7 /task's True\n"), ran.stderr


def test_traceback_shows_the_users_lines_alone(tmp_path: Path) -> None:
    ran = run(tmp_path, "def f():\n    return {}['k']\n\nf()\n")
    assert ran.code == 1
    failed = ran.said("exception")
    assert failed["exception"] == "KeyError: 'k'"
    assert failed["traceback"] == ran.stderr
    assert 'File "<cell [3]>", line 2, in f\n    return {}[' in ran.stderr
    assert "runner.py" not in ran.stderr


def test_traceback_leaves_out_our_frames_between_the_users(tmp_path: Path) -> None:
    body = """
        from tfcluster import runner

        class Bad:
            size = 1
            def tolist(self):
                raise ValueError("bad")

        runner.plain(Bad())
        """
    trace = run(tmp_path, body).said("exception")["traceback"]
    assert "runner.plain(Bad())" in trace and 'raise ValueError("bad")' in trace
    assert "runner.py" not in trace, trace
    trace = run(tmp_path, "from tfcluster import runner\nrunner.plain(1)\n").said("exception")["traceback"]
    assert "runner.plain(1)" in trace and "runner.py" in trace, trace  # where ours raised it


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("raise SystemExit", 0),
        ("raise SystemExit(5)", 5),
        ("import sys; sys.exit('words')", 1),
        ("raise KeyboardInterrupt", 130),
        ("import atexit, sys; atexit.register(lambda: print('bye')); sys.exit(3)", 3),
        (
            "import threading, time; threading.Thread(target=lambda: (time.sleep(.1), print('bye'))).start()",
            0,
        ),
    ],
)
def test_exit_codes(tmp_path: Path, source: str, code: int) -> None:
    ran = run(tmp_path, source)
    assert ran.code == code
    assert ("bye" in ran.stdout) == ("bye" in source)
    assert ("words" in ran.stderr) == ("words" in source)


def test_sigterm_runs_finally_blocks(tmp_path: Path) -> None:
    process, agent = start(
        tmp_path,
        """
        import time
        try:
            print("in", flush=True)
            time.sleep(60)
        finally:
            print("saved", flush=True)
        """,
    )
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGTERM)
    ran = finish(process, agent)
    assert (ran.code, ran.stdout) == (143, "saved\n")


def test_function_with_args_and_ctx(tmp_path: Path) -> None:
    body = pickled("def main_fun(args, ctx):\n    return [args['lr'], ctx.job_name, ctx.task_index]")
    (tmp_path / "args").write_bytes(pickle.dumps({"lr": 0.5}))
    said = {"job_name": "worker", "task_index": 2}
    ran = run(tmp_path, body, kind="function", args=str(tmp_path / "args"), context=said)
    assert json.loads(ran.said("result")["json"]) == [0.5, "worker", 2]
    assert ran.said("result")["repr"] == "[0.5, 'worker', 2]"


@pytest.mark.parametrize(
    ("parameters", "returned", "want"),
    [
        ("", "'none'", "none"),
        ("args", "args", ["w"]),
        ("*both", "len(both)", 2),
        ("args, ctx=None", "ctx.mode", "train"),
    ],
)
def test_what_main_fun_takes(tmp_path: Path, parameters: str, returned: str, want) -> None:
    body = pickled(f"def main_fun({parameters}):\n    return {returned}")
    ran = run(tmp_path, body, kind="function", words=["w"])
    assert json.loads(ran.said("result")["json"]) == want


def shipped(source: str, filename: str) -> bytes:
    """main_fun of a source as it is sent to the tasks."""
    pytest.importorskip("cloudpickle")
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict = {"__name__": "__main__"}
    exec(compile(source, filename, "exec"), namespace)
    return shipping.pickle_program(namespace["main_fun"], "main_fun", 1 << 20, 1 << 20)[0]


def test_sources_of_a_function_make_its_traceback(tmp_path: Path) -> None:
    body = shipped("def main_fun(args, ctx):\n    raise ValueError('x')\n", "/tmp/ipykernel_1/2.py")
    assert "raise ValueError('x')" in run(tmp_path, body, kind="function").stderr


def test_autograph_finds_the_source_of_a_function(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    source = textwrap.dedent(
        """
        import tensorflow as tf
        def negate(x):
            if tf.reduce_sum(x) > 0:
                return x
            return -x
        def main_fun(args, ctx):
            return float(tf.function(negate)(tf.constant(-3.0)))
        """
    )
    ran = run(tmp_path, shipped(source, "Cell In[2]"), kind="function")
    assert json.loads(ran.said("result")["json"]) == 3.0, ran.stderr


def test_result_that_cannot_be_sent_whole(tmp_path: Path) -> None:
    big = run(tmp_path, pickled("def main_fun():\n    return b'x' * (4 << 20)"), kind="function")
    assert "pickled_b64" not in big.said("result") and "4 MB" in big.said("note")["text"]
    odd = run(tmp_path, pickled("def main_fun():\n    return (i for i in [])"), kind="function")
    assert odd.code == 0 and "cannot be pickled" in odd.said("note")["text"]


def test_script_and_one_of_its_functions(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("name = 'beside'")
    script = """
        import sys, beside
        def go(args, ctx):
            print("go", args, ctx.mode)
        if __name__ == "__main__":
            print("main", sys.argv[1:], beside.name, __file__)
        """
    path = str(tmp_path / "train.py")
    ran = run(tmp_path, script, kind="script", name="train.py", path=path, words=["w"])
    assert ran.stdout == f"main ['w'] beside {path}\n", ran.stderr
    ran = run(tmp_path, script, kind="script", name="train.py", path=path, words=["w"], function="go")
    assert ran.stdout == "go ['w'] train\n", ran.stderr
    ran = run(tmp_path, script, kind="script", name="train.py", path=path, function="gone")
    assert ran.said("exception")["exception"] == "AttributeError: train.py has no function 'gone'"


def test_modules_come_first(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as z:
        z.writestr("shipped.py", "x = 'new'")
        z.writestr("folder/__init__.py", "")
        z.writestr("folder/inner.py", "y = 1")
    (tmp_path / "shipped.py").write_text("x = 'old'")
    ran = run(
        tmp_path,
        "import shipped, folder.inner\nprint(shipped.x, folder.inner.y)",
        modules=str(tmp_path / "m.zip"),
        modules_dir=str(tmp_path / "unpacked"),
    )
    assert ran.stdout == "new 1\n", ran.stderr


@pytest.mark.parametrize("spec", [{}, {"kind": "script", "path": "/no/such/dir/train.py"}])
def test_autograph_finds_the_source(tmp_path: Path, spec: dict) -> None:
    pytest.importorskip("tensorflow")
    ran = run(
        tmp_path,
        """
        import tensorflow as tf
        @tf.function
        def f(x):
            if tf.reduce_sum(x) > 0:
                return x
            return -x
        print(float(f(tf.constant(-3.0))))
        """,
        **spec,
    )
    assert ran.stdout == "3.0\n", ran.stderr


def test_server_join_is_told_and_ended_by_sigterm(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    process, agent = start(
        tmp_path,
        """
        import tensorflow as tf
        server = tf.distribute.Server({"ps": ["127.0.0.1:0"]}, job_name="ps", task_index=0)
        try:
            server.join()
        finally:
            print("left")
        """,
    )
    while agent.read()["op"] != "server_join":
        pass
    process.send_signal(signal.SIGTERM)
    ran = finish(process, agent)
    assert (ran.code, ran.stdout) == (143, "left\n")


def test_unpack_twice_and_broken(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as z:
        z.writestr("../outside.py", "x")
        z.writestr("a.py", "1")
    for _ in range(2):
        modules.unpack(str(tmp_path / "m.zip"), str(tmp_path / "m"))
    assert (tmp_path / "m" / "a.py").exists() and not (tmp_path / "outside.py").exists()
    (tmp_path / "bad.zip").write_text("no zip")
    with pytest.raises(zipfile.BadZipFile):
        modules.unpack(str(tmp_path / "bad.zip"), str(tmp_path / "bad"))
    assert not os.path.exists(tmp_path / "bad")


def test_shorten() -> None:
    assert runner.shorten("a" * 100, 50) == "a" * 23 + " … " + "a" * 23
    assert runner.shorten("abc", 50) == "abc"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("data/x.csv", "data/x.csv"),
        ("/notebooks/data/x.csv", "data/x.csv"),
        ("/elsewhere/x.csv", ""),
        ("/notebooks2/x", ""),
    ],
)
def test_a_file_of_the_notebooks_folder(tmp_path: Path, name: str, given: str) -> None:
    ran = run(tmp_path, f"open({name!r})", absent="/notebooks", context={"host": "host-a"})
    hint = f"on host-a the task does not run in the notebook's folder: reserve with --files {given}, or"
    assert ran.code == 1
    assert (hint in ran.stderr) == bool(given)
    assert ("--files" in ran.said("exception")["exception"]) == bool(given)


def test_a_missing_file_in_the_notebooks_folder(tmp_path: Path) -> None:
    assert "--files" not in run(tmp_path, "open('x')").stderr


@pytest.mark.parametrize("failed", ["raise ValueError('bad batch')", "import sys; sys.exit(3)"])
def test_a_failed_program_is_not_waited_for(tmp_path: Path, failed: str) -> None:
    """As JAX waits at exit for its peers, which wait for it."""
    begun = ("-c", "import sys; from tfcluster import runner; runner.LEAVE_LIMIT = 0.2; runner.main(sys.argv)")
    ran = finish(*start(tmp_path, f"import atexit, time\natexit.register(time.sleep, 600)\n{failed}\n", begun=begun))
    assert ran.code == (3 if "exit" in failed else 1)
    assert "tfcluster: ended 0.2 s after the program had failed" in ran.stderr
