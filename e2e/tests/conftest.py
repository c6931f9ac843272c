"""Fixtures: the real program, installed into a prefix of its own, and notebooks whose kernel it is.

Tests that are marked `engines` belong to make test-engines, all others to make test.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import ending
import pytest
from ending import alive, processes
from kernels import DEADLINE, LEFTOVERS, Cell, Notebook, wait_for, written

__all__ = ["DEADLINE", "CHEAP", "ROOT", "Cell", "Notebook", "alive", "processes", "wait_for", "written"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOREIGN = ("TFCLUSTER", "JUPYTER", "XDG", "SPARK_", "PYSPARK_", "HADOOP_")  # variables that tests do not inherit
LONG = ("test_why.py", "test_collective_faults.py", "test_notebooks.py", "test_feed_spark.py", "test_lines.py")
OWN = ("HOME", "XDG_RUNTIME_DIR", "TMPDIR", "TFCLUSTER_HOME", "TFCLUSTER_TEST", "TFCLUSTER_BINARY")  # a test's own
CHEAP = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # options with which a JVM starts fast
SPARK_DEFAULTS = f"""spark.driver.extraJavaOptions {CHEAP}
spark.executor.extraJavaOptions {CHEAP}
spark.driver.memory 512m
spark.ui.enabled false
"""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and end the session at SIGTERM."""
    config.addinivalue_line("markers", "engines: a test of make test-engines; all others are in make test")
    ending.handle_signals()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules of long tests: a worker that has no test left takes one from the end of another's."""
    items.sort(key=lambda item: item.path.name not in LONG)


def of_all_workers(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return the folder that the workers of pytest-xdist have in common."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


def once_for_all(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[pathlib.Path], None]
) -> pathlib.Path:
    """Return a path of the session that the first worker of pytest-xdist makes, and the others wait for."""
    folder = of_all_workers(tmp_path_factory)
    path = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            made = path.with_suffix(".new")
            make(made)
            made.rename(path)
    return path


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The program under test: that of TFCLUSTER_TEST_PROGRAM, or one that is built here."""
    if given := os.environ.get("TFCLUSTER_TEST_PROGRAM"):
        return pathlib.Path(given).resolve(strict=True)

    def build(path: pathlib.Path) -> None:
        subprocess.run(["go", "build", "-o", str(path), "."], cwd=ROOT, check=True)

    return once_for_all(tmp_path_factory, "tfcluster", build)


@pytest.fixture(scope="session")
def prefix(binary: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where the kernel is installed."""
    return once_for_all(tmp_path_factory, "prefix", functools.partial(install, binary))


def install(binary: pathlib.Path, path: pathlib.Path) -> None:
    """Install the kernel of a program below a path."""
    board = ROOT / ".venv-tensorboard" / "bin" / "python"
    words = ["--prefix", str(path), "--python", sys.executable, "--tensorboard-python", str(board)]
    subprocess.run([str(binary), "install", *words], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session", autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """The session's own /tmp, with a short path; with it ends what the tests started, also if pytest is killed."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tf"))
    tempfile.tempdir = str(folder)  # of jupyter_client's connection files, too
    marker = f"TFCLUSTER_TEST={tmp_path_factory.getbasetemp()}"
    os.environ["TFCLUSTER_TEST"] = f"{tmp_path_factory.getbasetemp()}/"  # of what gets no environment of a test
    with ending.guarded(f"{marker}/", folder):
        yield folder
        shutil.rmtree(folder)


@contextlib.contextmanager
def environment(folder: pathlib.Path, binary: pathlib.Path, runtime: pathlib.Path) -> Iterator[dict[str, str]]:
    """Yield an environment of a test's own; whatever is left with it in the end is a leftover."""
    marker = f"TFCLUSTER_TEST={folder}\0"
    home, conf = folder / "home", folder / "spark-conf"
    home.mkdir()
    conf.mkdir()
    short = pathlib.Path(tempfile.mkdtemp(dir=runtime, prefix=""))
    run, temporary = short / "r", short / "t"
    run.mkdir()
    temporary.mkdir()
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)},
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(run),
        "TMPDIR": str(temporary),
        "TFCLUSTER_HOME": str(folder / "state"),
        "TFCLUSTER_TEST": str(folder),
        "TFCLUSTER_BINARY": str(binary),
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    # Executors of a standalone Spark have the environment of its worker, which may be no test's.
    own = [f"spark.executorEnv.{name} {env[name]}\n" for name in OWN]
    (conf / "spark-defaults.conf").write_text(SPARK_DEFAULTS + "".join(own))
    try:
        yield env
        if not ending.interrupted():
            with contextlib.suppress(AssertionError):
                wait_for("the end of what the test started", lambda: not processes(marker), LEFTOVERS)
            left = processes(marker)
            assert not left, f"left behind: {left}"
    finally:
        ending.end(marker, 1)
        # A killed kernel's gate stays until the next kernel sweeps it.
        files = {str(path.relative_to(run)) for path in run.rglob("*") if not path.is_dir()}
        files -= {name for name in files if "/gate-" in name}
        shutil.rmtree(short)
    assert not files or ending.interrupted(), f"left behind: {files}"


@pytest.fixture
def env(tmp_path: pathlib.Path, binary: pathlib.Path, runtime: pathlib.Path) -> Iterator[dict[str, str]]:
    """An environment of the test's own."""
    with environment(tmp_path, binary, runtime) as env:
        yield env


@pytest.fixture
def notebook(prefix: pathlib.Path, env: dict[str, str], tmp_path: pathlib.Path) -> Iterator[Notebook]:
    """A fresh notebook in a folder of its own."""
    book = Notebook(prefix, env, tmp_path)
    try:
        yield book
    finally:
        book.close()


@pytest.fixture(scope="module")
def module_env(
    binary: pathlib.Path, runtime: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """An environment of the module's own."""
    with environment(tmp_path_factory.mktemp("module"), binary, runtime) as env:
        yield env


@pytest.fixture(scope="module")
def kernel(prefix: pathlib.Path, module_env: dict[str, str]) -> Iterator[Notebook]:
    """A notebook for the tests of a module, which use it by `shared`."""
    book = Notebook(prefix, module_env, pathlib.Path(module_env["TFCLUSTER_TEST"]))
    try:
        yield book
    finally:
        book.close()


@pytest.fixture
def shared(kernel: Notebook, tmp_path: pathlib.Path) -> Iterator[Notebook]:
    """The module's notebook, in a folder of the test's own, without names, clusters and files of other tests."""
    kernel.enter(tmp_path)
    yield kernel
    kernel.leave()
