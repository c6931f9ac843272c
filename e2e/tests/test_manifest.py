"""What runs record of what they ran with: differences between tasks at the start, and between runs in history."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess

import pytest
from conftest import Notebook, wait_for

RESERVE = "%tfcluster reserve --backend local --workers 3 --dir {}"
FUNCTION = """
LR = {rate}
SECRET = "notebook"
def scaled(x):
    return x * LR
def main_fun(args, ctx):
    import keras
    keras.utils.set_random_seed({seed})
    ctx.report(step=1, loss=scaled(0.5))
"""

# Python reads it at the start of every task, before tfcluster does: one task finds another package than the others.
SITE = """
import os, sys
if os.environ.get("TASK_INDEX") == "2" and os.environ.get("JOB_NAME") == "worker":
    sys.path.insert(0, {old!r})
else:
    sys.path.insert(0, {new!r})
"""


def stub(folder: pathlib.Path, version: str) -> str:
    """A package of that version, as pip installs it."""
    package = folder / version / "site-packages"
    (package / "skewed").mkdir(parents=True)
    (package / "skewed" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (package / f"skewed-{version}.dist-info").mkdir()
    return str(package)


def manifest(runs: pathlib.Path, run: int) -> dict:
    return json.loads((runs / f"run-{run:03}" / "run-manifest.json").read_text())


def test_differences_between_runs(notebook: Notebook, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """history --diff and --compare in a notebook and a shell, of a living cluster and after its end."""
    runs = tmp_path / "runs"
    (tmp_path / "README").write_text("of the notebook")
    for words in (["init", "-q", "-b", "main"], ["add", "README"], ["commit", "-q", "-m", "first"]):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        subprocess.run(command, check=True, env=env, cwd=tmp_path)
    notebook.ok(RESERVE.format(runs))
    for run, (rate, seed) in enumerate(((0.5, 7), (0.25, 8)), start=1):
        notebook.ok(FUNCTION.format(rate=rate, seed=seed))
        notebook.ok(f"%tfcluster start --env COLOUR=c{run} --env MY_TOKEN=geheim main_fun --batch {run}")
        notebook.ok("%tfcluster wait")
    wait_for("git's answer", lambda: all("git" in manifest(runs, run) for run in (1, 2)))
    first = manifest(runs, 1)
    assert first["git"]["branch"] == "main" and len(first["git"]["commit"]) == 40, first["git"]
    common = first["common"]
    assert common["values"] == {"LR": "0.5"} and common["packages"]["numpy"] and common["versions"]["Python"]
    assert "def scaled" in first["tasks"]["worker:0"]["sources"]["main_fun"] and len(first["tasks"]) == 3
    assert common["seeds"]["keras"] == "7"
    assert "geheim" not in json.dumps(first) and "MY_TOKEN" not in json.dumps(first)

    shown = notebook.ok("%tfcluster history --diff").all
    for change in (
        r"value +LR +0.5 +0.25",
        r"argument +--batch +1 +2",
        r"environment +COLOUR +c1 +c2",
        r"seed +keras +7 +8",
        r"metric +loss +0.25 +0.125",
    ):
        assert re.search(change, shown), f"{change}\n{shown}"
    assert "-    keras.utils.set_random_seed(7)" in shown and "+    keras.utils.set_random_seed(8)" in shown
    assert "package" not in shown and "worker" not in shown.replace("workers", ""), shown
    value = notebook.ok(
        "c = %tfcluster history --compare\nprint([(r['differing']['LR'], r['metrics']['loss']) for r in c])"
    )
    assert "[('0.5', 0.25), ('0.25', 0.125)]" in value.text, value.all
    value = notebook.ok(
        "import tfcluster\nd = tfcluster.attach().history(1, 2, diff=True)\nprint(d['runs'], d['missing'])"
    )
    assert "[1, 2] []" in value.text, value.all

    notebook.ok("%tfcluster shutdown")
    command = [env["TFCLUSTER_BINARY"], "history", "--diff", "1", "2", "--json"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    changes = {(c["kind"], c["name"]): (c["before"], c["after"]) for c in json.loads(done.stdout)["changes"]}
    assert changes["value", "LR"] == ("0.5", "0.25") and changes["argument", "--batch"] == ("1", "2"), changes


@pytest.mark.engines
def test_differences_between_tasks(notebook: Notebook, tmp_path: pathlib.Path) -> None:
    """A task with another version of a package is named at the start, once, and nothing else is."""
    site = tmp_path / "site"
    site.mkdir()
    old, new = stub(tmp_path, "1.26"), stub(tmp_path, "2.1")
    (site / "sitecustomize.py").write_text(SITE.format(old=old, new=new))
    (tmp_path / "prog.py").write_text("import skewed\nprint('has', skewed.__version__)\n")
    runs = tmp_path / "runs"
    notebook.ok(RESERVE.format(runs) + " --no-zygote")
    start = notebook.ok(f"%tfcluster start --env PYTHONPATH={site} prog.py")
    assert "warning: worker:2 has skewed 1.26, the others 2.1" in start.stderr, start.all
    wait = notebook.ok("%tfcluster wait")
    assert "has 1.26" in wait.text + start.text and "skewed 1.26" not in wait.stderr, wait.all
    assert start.stderr.count(" has ") == 1, start.stderr
    tasks = manifest(runs, 1)["tasks"]
    assert [tasks[f"worker:{n}"]["packages"]["skewed"] for n in range(3)] == ["2.1", "2.1", "1.26"]
    notebook.ok("%tfcluster shutdown")
