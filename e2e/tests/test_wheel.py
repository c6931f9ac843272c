"""pip install, in fresh environments: long, and it fetches packages (make test-long)."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from conftest import DEADLINE, ROOT, processes, wait_for

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(not os.environ.get("TFCLUSTER_TEST_WHEELS"), reason="missing: TFCLUSTER_TEST_WHEELS=1"),
]

# Start a kernel as a front end does, run the cells, and print what they show.
CELLS = """
import sys
from jupyter_client.manager import start_new_kernel

def show(message):
    content = message["content"]
    print(content.get("text") or content.get("data", {}).get("text/plain") or content.get("evalue") or "")

manager, client = start_new_kernel(kernel_name=sys.argv[1], startup_timeout=60)
try:
    for cell in sys.argv[2:]:
        client.execute_interactive(cell, timeout=120, output_hook=show)
finally:
    client.stop_channels()
    manager.shutdown_kernel()
"""
FED = (
    "%tfcluster reserve --workers 2",
    """
import numpy as np
data = {"x": np.arange(10_000, dtype="float32")}
def count(args, ctx):
    feed, n = ctx.get_data_feed(), 0
    while not feed.should_stop():
        n += len(feed.next_batch(100))
    return n
""",
    "%tfcluster start count",
    "run = %tfcluster train data --epochs 2\nprint(sum(run.results.values()), 'records')",
    "%tfcluster shutdown",
)
PREFIX = "import sys, tfcluster; print('kernel of', sys.prefix)"


class Place:
    """A user without any environment activated, in a home of their own."""

    def __init__(self, path: pathlib.Path, runtime: pathlib.Path) -> None:
        (path / "home").mkdir()
        self.path = path
        kept = ("TFCLUSTER", "JUPYTER", "JPY", "XDG", "PYTHON", "VIRTUAL_ENV", "CONDA")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(kept)} | {
            "HOME": str(path / "home"),
            "XDG_RUNTIME_DIR": str(runtime),
            "TFCLUSTER_TEST": str(path),
            "PATH": "/usr/bin:/bin",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        # The cache of packages is that of the user who runs the tests.
        cache = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True)
        self.env["PIP_CACHE_DIR"] = cache.stdout.strip()

    def run(self, *command: str | os.PathLike[str], ok: bool = True, **more: str) -> str:
        """Return what a command wrote."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.env | more,
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1800,
        )
        assert done.returncode == 0 or not ok, f"{command}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def environment(self, name: str, *packages: str, python: str = sys.executable) -> pathlib.Path:
        """Make an environment with packages."""
        prefix = self.path / name
        self.run(python, "-m", "venv", prefix)
        if packages:
            self.run(prefix / "bin" / "python", "-m", "pip", "install", "-q", *packages)
        return prefix

    def cells(self, python: pathlib.Path, kernel: str, *cells: str, **more: str) -> str:
        """Run cells by the Jupyter of an environment."""
        return self.run(python, "-c", CELLS, kernel, *cells, **more)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Place]:
    runtime = pathlib.Path(tempfile.mkdtemp(prefix="tf"))  # short: it holds sockets
    try:
        yield Place(tmp_path, runtime)
        marker = f"TFCLUSTER_TEST={tmp_path}"
        wait_for("the end of what the test started", lambda: not processes(marker))
    finally:
        shutil.rmtree(runtime)
        shutil.rmtree(tmp_path)  # gigabytes


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the wheel for this machine."""
    path = tmp_path_factory.mktemp("dist")
    env = os.environ | {"TFCLUSTER_WHEEL_ARCH": os.uname().machine, "SOURCE_DATE_EPOCH": "1700000000"}
    hatchling = ROOT / ".venv-wheel" / "bin" / "hatchling"
    subprocess.run([hatchling, "build", "-t", "wheel", "-d", path], cwd=ROOT, env=env, check=True)
    return path


def install(place: Place, prefix: pathlib.Path, dist: pathlib.Path, what: str = "tfcluster") -> None:
    place.run(prefix / "bin" / "python", "-m", "pip", "install", "-q", "--find-links", dist, what)


def listing(prefix: pathlib.Path) -> set[str]:
    """The files and folders below a prefix, but for what Python compiles."""
    return {str(path.relative_to(prefix)) for path in prefix.rglob("*") if "__pycache__" not in path.parts}


def test_one_command(place: Place, dist: pathlib.Path) -> None:
    """Beside JupyterLab alone, one command; then the quickstart, a program from a shell, and doctor."""
    prefix = place.environment("my env", "jupyterlab")
    install(place, prefix, dist, "tfcluster[tensorflow]")
    doctor = place.run(prefix / "bin" / "tfcluster", "doctor")
    assert "nothing is missing" in doctor and str(prefix / "bin" / "python") in doctor
    for name in ("01-quickstart.ipynb", "mnist.py", "train.py"):
        shutil.copy(ROOT / "notebooks" / name, place.path)
    convert = ["nbconvert", "--to", "notebook", "--execute", "--output", "out"]
    place.run(prefix / "bin" / "jupyter", *convert, "01-quickstart.ipynb")
    cells = json.loads((place.path / "out.ipynb").read_text())["cells"]
    shown = "".join("".join(o.get("text", "")) for c in cells for o in c.get("outputs", ()))
    assert "accuracy 0." in shown and "these digits are drawn" in shown  # there is nothing but the installation
    if shutil.which("chromium") and (ROOT / "e2e/lab/node_modules").exists():
        pip = {"TFCLUSTER_TEST_PYTHON": str(prefix / "bin" / "python"), "TFCLUSTER_TEST_PIP": "1"}
        command = ["go", "test", "-count=1", "-run", "TestQuickstart", "./e2e/lab"]
        browser = subprocess.run(command, cwd=ROOT, env=os.environ | pip, capture_output=True, text=True)
        assert browser.returncode == 0, browser.stdout
    assert "accuracy" in place.run(prefix / "bin/tfcluster", "run", "--workers", "2", "train.py", "2")
    assert "20000 records" in place.cells(prefix / "bin" / "python", "tfcluster", *FED)


def test_what_pip_installs_and_removes(place: Place, dist: pathlib.Path) -> None:
    """The kernel, the magics in a plain ipykernel, the extension and the proxy's entry; after uninstall nothing."""
    prefix = place.environment(
        "my env", "cloudpickle", "ipykernel", "jupyter-server-proxy>=4.2", "pyarrow", "jupyterlab"
    )
    python = prefix / "bin" / "python"
    before = listing(prefix)
    install(place, prefix, dist)
    assert f"kernel of {prefix}" in place.cells(python, "tfcluster", PREFIX)
    assert "this program: tfcluster " in place.cells(python, "tfcluster", "%tfcluster version")
    assert "this program: tfcluster " in place.cells(python, "python3", "%load_ext tfcluster\n%tfcluster version")
    assert "tfcluster-lab" in place.run(prefix / "bin" / "jupyter", "labextension", "list")
    with server(place, prefix) as ask:
        assert "tfcluster" in ask("api/kernelspecs")[1]
        answer = ask("tfcluster/no-cluster/00112233445566778899aabbccddeeff/")
        # said by the broker
        assert answer == (404, "this cluster's TensorBoard is gone: %tfcluster tensorboard opens another\n")
    place.run(python, "-m", "pip", "uninstall", "-q", "-y", "tfcluster")
    assert listing(prefix) == before
    assert not [path for path in prefix.rglob("*tfcluster*")]


@contextlib.contextmanager
def server(place: Place, prefix: pathlib.Path) -> Iterator[Callable[[str], tuple[int, str]]]:
    """A Jupyter server of an environment: a function from a path to status and text."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    words = [f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", "--no-browser", "--IdentityProvider.token=secret"]
    log = (place.path / "server.log").open("w")
    command = [prefix / "bin" / "jupyter", "lab", *words, "--allow-root"]
    running = subprocess.Popen(command, env=place.env, cwd=place.path, stdout=log, stderr=log)

    def ask(path: str) -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", headers={"Authorization": "token secret"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def up() -> bool:
        try:
            return ask("api")[0] == 200
        except OSError:
            return False

    try:
        wait_for("the server", up)
        yield ask
    finally:
        running.terminate()
        running.wait(DEADLINE)
        log.close()


def test_a_folder_that_cannot_be_written(place: Place, dist: pathlib.Path) -> None:
    """An image's environment, mounted read-only."""
    prefix = place.environment("env", "ipykernel")
    install(place, prefix, dist)
    mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && ! touch "$0/x" 2>/dev/null && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, str(prefix)]
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip("missing: the right to mount")
    python = prefix / "bin" / "python"
    shown = place.run(*command, python, "-c", CELLS, "tfcluster", PREFIX, "%tfcluster version")
    assert f"kernel of {prefix}" in shown and "this program: tfcluster " in shown


def interpreter(version: str) -> str:
    """A Python of a version: of PATH, or of the folders in TFCLUSTER_TEST_PATH; "" if there is none that runs."""
    for folder in os.environ.get("TFCLUSTER_TEST_PATH", "").split(os.pathsep) + os.get_exec_path():
        python = os.path.join(folder, f"python{version}")
        if (
            os.access(python, os.X_OK)
            and subprocess.run([python, "-m", "venv", "-h"], capture_output=True).returncode == 0
        ):
            return python
    return ""


PROGRAM = """
import sys, keras, numpy as np, tensorflow as tf
x = np.random.default_rng(0).normal(size=(8192, 16)).astype("float32")
y = (x.sum(axis=1) > 0).astype("int32")
with tf.distribute.MultiWorkerMirroredStrategy().scope():
    model = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(x, y, batch_size=128, epochs=2, verbose=0)
accuracy = model.evaluate(x, y, verbose=0)[1]
assert accuracy > 0.8, accuracy
print(f"accuracy {accuracy:.3f} by Python {sys.version_info.minor}", file=sys.stderr)
"""


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_other_pythons(place: Place, dist: pathlib.Path, version: str) -> None:
    """What the wheel's metadata and doctor say is supported: a program on two workers, and the kernel."""
    python = interpreter(version)
    if not python:
        pytest.skip(f"missing: python{version} on PATH or in TFCLUSTER_TEST_PATH")
    prefix = place.environment("env", python=python)
    install(place, prefix, dist, "tfcluster[tensorflow]")
    doctor = place.run(prefix / "bin" / "tfcluster", "doctor")
    assert "nothing is missing" in doctor and "not tested" not in doctor, doctor
    (place.path / "program.py").write_text(PROGRAM)
    shown = place.run(prefix / "bin" / "tfcluster", "run", "--workers", "2", "program.py")
    assert f"by Python {version.removeprefix('3.')}" in shown, shown
    shown = place.cells(prefix / "bin" / "python", "tfcluster", PREFIX, "import sys; print(sys.version)")
    assert f"kernel of {prefix}" in shown and f"\n{version}." in shown, shown


def test_laid_out_as_by_conda(place: Place, dist: pathlib.Path) -> None:
    """An interpreter at PREFIX/bin/python, conda-meta, no pyvenv.cfg; not conda, whose packages are no wheels."""
    prefix = place.path / "my conda"
    shutil.copytree(sys.base_prefix, prefix, symlinks=True)
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / "history").touch()
    python = prefix / "bin" / f"python3.{sys.version_info.minor}"
    place.run(python, "-m", "pip", "install", "-q", "--break-system-packages", "ipykernel", "jupyter-server-proxy>=4.2")
    before = listing(prefix)
    place.run(python, "-m", "pip", "install", "-q", "--break-system-packages", "--find-links", dist, "tfcluster")
    shown = place.cells(python, "tfcluster", PREFIX, "%tfcluster version")
    assert f"kernel of {prefix}" in shown and "this program: tfcluster " in shown, shown
    (place.path / "where.py").write_text(WHERE)
    run = [prefix / "bin" / "tfcluster", "run", "--workers", "1", "--framework", "none", "where.py"]
    assert f"task of {prefix}" in place.run(*run)
    active = {"CONDA_PREFIX": str(prefix), "CONDA_DEFAULT_ENV": "mine", "PATH": f"{prefix}/bin:{place.env['PATH']}"}
    assert f"task of {prefix}" in place.run(*run, **active)
    place.run(
        python, "-m", "pip", "uninstall", "-q", "-y", "--break-system-packages", "tfcluster", "cloudpickle", "pyarrow"
    )
    assert listing(prefix) - before == set()


WHERE = "import sys; print('task of', sys.prefix)"


def test_pipx_and_uvx(place: Place, dist: pathlib.Path) -> None:
    """Each program has its own environment: tasks run in the project's, if one is active, else in the program's."""
    tools = place.environment("tools", "pipx", "uv")
    project = place.environment("my project")
    (place.path / "where.py").write_text(WHERE)
    run = ["run", "--workers", "1", "--framework", "none", "where.py"]
    active = {"VIRTUAL_ENV": str(project), "PATH": f"{project}/bin:{place.env['PATH']}"}

    pipx = tools / "bin" / "pipx"
    place.run(pipx, "install", f"--pip-args=--find-links={dist}", "tfcluster")
    program = place.path / "home" / ".local" / "bin" / "tfcluster"
    own = place.run(program, *run)
    assert "task of " in own and "/pipx/venvs/tfcluster" in own, own
    assert f"task of {project}" in place.run(program, *run, **active)
    place.run(pipx, "uninstall", "tfcluster")
    assert not program.exists()

    certificates = os.environ.get("PIP_CERT", "")  # uv does not read pip's settings
    trusted = {"SSL_CERT_FILE": certificates} if certificates else {}
    uvx = [tools / "bin" / "uvx", "--find-links", dist, "tfcluster"]
    assert "\ntfcluster " in "\n" + place.run(*uvx, "version", **trusted)
    own = place.run(*uvx, *run, **trusted)
    assert "task of " in own and str(project) not in own, own
    assert f"task of {project}" in place.run(*uvx, *run, **active, **trusted)


def test_for_the_user(place: Place, dist: pathlib.Path) -> None:
    """pip install --user, and Jupyter in an environment: the kernel runs the Python that it was installed for."""
    base = pathlib.Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    place.run(
        base, "-m", "pip", "install", "-q", "--user", "--break-system-packages", "--find-links", dist, "tfcluster"
    )
    lab = place.environment("my lab", "ipykernel")
    shown = place.cells(lab / "bin" / "python", "tfcluster", PREFIX, "import sys; print(sys.executable)")
    assert f"kernel of {sys.base_prefix}" in shown and str(base) in shown, shown


def test_two_environments(place: Place, dist: pathlib.Path) -> None:
    """Jupyter in one, the kernel in another: doctor says what to do, and that works."""
    lab = place.environment("my lab", "ipykernel")
    own = place.environment("my kernel", "ipykernel")
    install(place, own, dist)
    python = lab / "bin" / "python"
    kernels = str(own / "share" / "jupyter")
    assert f"kernel of {own}" in place.cells(python, "tfcluster", PREFIX, JUPYTER_PATH=kernels)
    shown = place.cells(python, "tfcluster", "%tfcluster doctor", JUPYTER_PATH=kernels)
    remedy = f"'{own}/bin/tfcluster' install --prefix '{lab}'"
    assert f"{python}: another environment than the kernel's" in shown and remedy in shown, shown
    # As python -m jupyterlab, in a shell where its environment is active: the process names no path.
    active = f"{lab}/bin:{place.env['PATH']}"
    words = ["python", "-c", CELLS, "tfcluster", "%tfcluster doctor"]
    shown = place.run(*words, JUPYTER_PATH=kernels, PATH=active, VIRTUAL_ENV=str(lab))
    assert f"{python}: another environment than the kernel's" in shown and remedy in shown, shown
    place.run("sh", "-c", remedy)
    assert f"kernel of {own}" in place.cells(python, "tfcluster", PREFIX)
    shown = place.cells(python, "tfcluster", "%tfcluster doctor")
    assert remedy not in shown and f"{lab}/share/jupyter/labextensions/tfcluster-lab" in shown, shown


def test_an_earlier_install(place: Place, dist: pathlib.Path) -> None:
    """What `tfcluster install` wrote before pip did is named by doctor and removed."""
    prefix = place.environment("env", "ipykernel")
    old = place.path / "old-tfcluster"
    subprocess.run(["go", "build", "-o", old, "."], cwd=ROOT, check=True)
    place.run(old, "install", "--sys-prefix", "--python", prefix / "bin" / "python")
    place.run(old, "install", "--user", "--python", prefix / "bin" / "python")
    install(place, prefix, dist)
    program = prefix / "bin" / "tfcluster"
    assert f"{program} install" in place.run(program, "doctor", ok=False)
    said = place.run(program, "install")
    assert f"removed what an earlier tfcluster install wrote: {prefix}/etc/jupyter/jupyter_server_config.py" in said
    assert "an earlier install" not in place.run(program, "doctor", ok=False)
    old.unlink()
    cell = "from tfcluster import program; print(program.installed())"
    assert str(program) in place.cells(prefix / "bin" / "python", "python3", cell)
    assert f"kernel of {prefix}" in place.cells(prefix / "bin" / "python", "tfcluster", PREFIX)
    assert not list((place.path / "home").rglob("jupyter_server_config.py"))
