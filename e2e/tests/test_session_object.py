"""reserve(session=…) with a SparkSession or a SparkContext itself, which no variable of the notebook holds."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from conftest import DEADLINE, ROOT, Notebook, processes, wait_for, written
from standalone import NEEDS_SPARK, SESSION, any_standalone, pyspark_home
from test_spark import connect  # noqa: F401  a fixture

pytestmark = NEEDS_SPARK

LIBRARY = """
import time
import shared

def main_fun(args, ctx):
    if args == "fail":
        raise ValueError("the cause is here")
    if args == "wait":
        time.sleep(3600)
    total, rows = 0.0, 0
    for batch in ctx.get_data_feed().as_iterable(100):
        total, rows = total + float(batch.sum()), rows + len(batch)
    return shared.pair(rows, total)
"""
SHARED = "def pair(a, b):\n    return a, b\n"
JOB = """
import os, sys
import library
import tfcluster
from pyspark.sql import SparkSession

class Job:
    def __init__(self):
        self.session = SparkSession.builder.getOrCreate()

    def reserve(self):
        self.cluster = tfcluster.reserve(backend="spark", session=self.session, workers=int(sys.argv[2]))

    def run(self):
        self.reserve()
        assert self.cluster.spark() is self.session
        self.cluster.start(library.main_fun, sys.argv[1])
        if sys.argv[1] == "wait":
            with open("pid.new", "w") as f:
                f.write(str(os.getpid()))
            os.rename("pid.new", "pid")
        rows = self.session.range(1000).selectExpr("double(id) AS x")
        run = self.cluster.train(rows)
        print("trained", [sum(each) for each in zip(*run.results.values())])

if __name__ == "__main__":
    Job().run()
    print("done")
"""


def outside(env: dict[str, str]) -> dict[str, str]:
    """Return the environment of a script without the kernel; on its path is the package alone."""
    return {**env, "PYTHONPATH": str(ROOT / "cluster" / "python")}


def submit(*words: str) -> list[str]:
    """Return a command line of spark-submit."""
    return [str(pyspark_home() / "bin" / "spark-submit"), *words]


def execute(command: list[str], env: dict[str, str], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, with all it says in stdout."""
    return subprocess.run(
        command,
        env=outside(env),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def write(folder: pathlib.Path, **sources: str) -> pathlib.Path:
    """Write modules into a folder."""
    folder.mkdir(exist_ok=True)
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    return folder


def is_over(env: dict[str, str]) -> None:
    """Wait until nothing is left of a script: no agent, driver, engine or process of tasks."""
    wait_for("the end of all that the script started", lambda: not processes(f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"))


def test_a_class_in_a_submitted_script(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Its method reserves on self.session, and trains a DataFrame with a module of --py-files; it ends with 0."""
    away = write(tmp_path / "away", library=LIBRARY, shared=SHARED)
    job = write(tmp_path / "jobs", job=JOB) / "job.py"
    files = f"{away / 'library.py'},{away / 'shared.py'}"
    done = execute(submit("--master", "local[2]", "--py-files", files, str(job), "train", "2"), env, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "trained [1000, 499500.0]\ndone\n" in done.stdout, done.stdout
    is_over(env)


@pytest.mark.engines
def test_a_program_that_fails(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The script ends with exit code 1, and says why; nothing of its cluster is left."""
    job = write(tmp_path / "jobs", job=JOB, library=LIBRARY, shared=SHARED) / "job.py"
    done = execute(submit("--master", "local[2]", str(job), "fail", "2"), env, tmp_path)
    assert done.returncode == 1, done.stdout
    assert "ValueError: the cause is here" in done.stdout, done.stdout  # in start, or in train if it was faster
    is_over(env)


@pytest.mark.engines
def test_a_standalone_master(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The agents are on executors of their own, and the modules beside the script go along from another folder."""
    job = write(tmp_path / "jobs", job=JOB, library=LIBRARY, shared=SHARED) / "job.py"
    with any_standalone(env, tmp_path) as master:
        more = ["--conf", "spark.cores.max=2", "--conf", "spark.executor.cores=1", "--executor-memory", "512m"]
        more += ["--conf", "spark.driver.host=127.0.0.1"]
        done = execute(submit("--master", master, *more, str(job), "train", "2"), env, tmp_path)
        assert done.returncode == 0 and "trained [1000, 499500.0]" in done.stdout, done.stdout


@pytest.mark.engines
def test_a_script_that_is_killed(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """With the script goes its session, and with that the cluster and what it runs."""
    job = write(tmp_path / "jobs", job=JOB, library=LIBRARY, shared=SHARED) / "job.py"
    said = tmp_path / "log"
    command = submit("--master", "local[2]", str(job), "wait", "2")
    with said.open("wb") as log:
        script = subprocess.Popen(command, env=outside(env), cwd=tmp_path, stdout=log, stderr=log)
    try:
        wait_for("the training", lambda: "waiting for worker:0" in said.read_text() or script.poll() is not None)
        assert script.poll() is None, said.read_text()
        python = int(written(tmp_path / "pid"))
        os.kill(python, signal.SIGKILL)
        assert script.wait(DEADLINE) != 0
    finally:
        script.kill()
        script.wait(DEADLINE)
    is_over(env)


@pytest.mark.engines
def test_two_sessions_at_once(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """A script without spark-submit: each cluster has its own object, also where the function's variable is gone."""
    script = (
        write(
            tmp_path / "jobs",
            library=LIBRARY,
            shared=SHARED,
            two="""
import library, tfcluster
from pyspark import SparkContext
from pyspark.sql import SparkSession

context = SparkContext("local[2]", "two")

def reserve(name, make, **more):
    mine = make()
    return tfcluster.reserve(backend="spark", session=mine, name=name, workers=1, **more)

other = SparkSession(context).newSession()
one, two = reserve("one", lambda: context), reserve("two", lambda: other)
assert one.spark().sparkContext is context and one.spark() is not other and two.spark() is other
assert tfcluster.attach("two").spark() is other
assert reserve("one", lambda: context).name == "one"
again = one.spark()
assert again is one.spark()
try:
    reserve("one", lambda: other)
except tfcluster.UsageError as e:
    print("refused:", e)
runs = [cluster.start(library.main_fun) for cluster in (one, two)]
for n, cluster in enumerate((one, two)):
    print("trained", n, cluster.train(cluster.spark().range(100 + n).selectExpr("double(id) AS x")).result)
two.reset(hard=True)
assert two.spark() is other
two.shutdown()
assert other.range(3).count() == 3
context.stop()
try:
    reserve("three", lambda: context)
except tfcluster.UsageError as e:
    print("stopped:", e)
""",
        )
        / "two.py"
    )
    done = execute([sys.executable, str(script)], env, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "trained 0 (100, 4950.0)" in done.stdout and "trained 1 (101, 5050.0)" in done.stdout, done.stdout
    assert "refused: reserve: cluster one already runs with other options (session)" in done.stdout, done.stdout
    assert "stopped: reserve(session=…): the SparkContext was stopped: make it again" in done.stdout, done.stdout
    is_over(env)


@pytest.mark.engines
def test_a_connect_session(env: dict[str, str], tmp_path: pathlib.Path, connect: str) -> None:  # noqa: F811
    """A client's session in a function of a script."""
    script = (
        write(
            tmp_path / "jobs",
            library=LIBRARY,
            shared=SHARED,
            client=f"""
import library, tfcluster
from pyspark.sql import SparkSession

def train():
    mine = SparkSession.builder.remote({connect!r}).getOrCreate()
    with tfcluster.reserve(backend="spark", session=mine, workers=1) as cluster:
        assert cluster.spark() is mine
        cluster.start(library.main_fun)
        return cluster.train(mine.range(100).selectExpr("double(id) AS x")).result

print("trained", train())
""",
        )
        / "client.py"
    )
    done = execute([sys.executable, str(script)], env, tmp_path)
    assert done.returncode == 0 and "trained (100, 4950.0)" in done.stdout, done.stdout


@pytest.mark.engines
def test_a_function_of_the_notebook(notebook: Notebook) -> None:
    """A local variable; the object in another variable, by its name or itself, means the same cluster."""
    notebook.ok(
        "import tfcluster\n"
        "def reserve():\n"
        + "".join(f"    {line}\n" for line in SESSION.strip().splitlines())
        + "    return tfcluster.reserve(backend='spark', session=spark, workers=1, no_zygote=True)\n"
        "c = reserve()"
    )
    cell = notebook.ok("mine = c.spark()\nmine.range(7).count()")
    assert cell.result == "7", cell.all
    for again in (
        "%tfcluster reserve --backend spark --session mine --workers 1 --no-zygote",
        "tfcluster.reserve(backend='spark', session=mine, workers=1, no_zygote=True)",
        "tfcluster.reserve(backend='spark', session='mine', workers=1, no_zygote=True)",
    ):
        assert "is already running with these options" in notebook.ok(again).all
    cell = notebook.fails("tfcluster.reserve(backend='spark', session=mine.sparkContext.appName, workers=1)")
    assert "UsageError" in cell.error, cell.all
    cell = notebook.fails("tfcluster.reserve(backend='spark', session=mine.range(2), workers=1)")
    assert "reserve(session=…) got a DataFrame: give a SparkSession, a SparkContext" in cell.error, cell.all
    notebook.ok("c.shutdown()\nmine.stop()")
    cell = notebook.fails("tfcluster.reserve(backend='spark', session=mine, workers=1)")
    assert "reserve(session=…): the SparkSession was stopped: make it again" in cell.error, cell.all
