"""Every verb, from a magic, by a client that repeats what VS Code's Jupyter extension does."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator

import nbformat
import pytest
import verb_notebook
import vscode
from conftest import ROOT, processes, wait_for
from nbclient import NotebookClient


@pytest.fixture
def user(env: dict[str, str], prefix: pathlib.Path, tmp_path: pathlib.Path) -> dict[str, str]:
    """The environment of a user who has the kernel installed where JUPYTER_PATH says."""
    return {**env, "JUPYTER_PATH": str(prefix / "share" / "jupyter"), "IPYTHONDIR": str(tmp_path / "ipython")}


@pytest.fixture
def kernel(user: dict[str, str], tmp_path: pathlib.Path) -> Iterator[vscode.Kernel]:
    """The kernel that VS Code starts for the kernelspec it finds."""
    (spec,) = [s for s in vscode.find(user) if s["display_name"] == "Python 3 (TFCluster)"]
    started = vscode.Kernel(spec, user, tmp_path)
    yield started
    if started.process.poll() is None:
        started.end()


def text(published: list[dict[str, object]]) -> str:
    """What a cell shows, as nbclient keeps the messages of a cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell()])
    keep(NotebookClient(notebook, record_timing=False), notebook.cells[0], 0, published)
    return verb_notebook.shown(notebook.cells[0])


def keep(client: NotebookClient, cell: nbformat.NotebookNode, index: int, published: list[dict[str, object]]) -> None:
    """Put the messages of an execution into its cell; a display may replace that of an earlier cell."""
    client.clear_before_next_output = False
    for message in (m for m in published if m["msg_type"] != "status"):
        client.process_message(message, cell, index)


@pytest.mark.engines
def test_every_verb(kernel: vscode.Kernel, tmp_path: pathlib.Path) -> None:
    """The notebook of all verbs, cell by cell."""
    kernel.ready()
    path = tmp_path / "verbs.ipynb"
    verb_notebook.write(path)
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, record_timing=False)
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            reply, published = kernel.execute(cell.source)
            keep(client, cell, index, published)
            assert reply["status"] == "ok", verb_notebook.shown(cell)
    nbformat.write(notebook, path)
    problems = verb_notebook.problems(path)
    assert not problems, "\n\n".join(problems)


def test_around_the_cells(kernel: vscode.Kernel, user: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Hidden code, completion, tooltips, the stop button while a verb waits, restart, and the end without a request."""
    info = kernel.ready()
    assert info["language_info"]["name"] == "python" and info["status"] == "ok"
    assert kernel.execute("x = 20")[0]["execution_count"] == 1
    reply, published = kernel.execute("import json; print(json.dumps(x + 1))", hidden=True)  # the view of variables
    assert text(published).strip() == "21" and reply["status"] == "ok"
    assert kernel.execute("x")[0]["execution_count"] == 2, "hidden code counts as a cell"

    code = "%tfcluster sta"
    matches = kernel.reply(kernel.send("complete_request", {"code": code, "cursor_pos": len(code)}))["matches"]
    assert {"start", "status"} <= {match.split()[-1] for match in matches}, matches
    inspect = {"code": "%tfcluster", "cursor_pos": 10, "detail_level": 0}
    tooltip = kernel.reply(kernel.send("inspect_request", inspect))
    assert tooltip["found"] and "reserve" in tooltip["data"]["text/plain"], tooltip

    forever = "def forever(args, ctx):\n    import time\n    while True:\n        time.sleep(0.05)"
    for source in (forever, "%tfcluster reserve --workers 1 --framework none", "%tfcluster start forever"):
        reply, published = kernel.execute(source)
        assert reply["status"] == "ok", text(published)
    waits = {"code": "%tfcluster wait", "silent": False, "store_history": True, "allow_stdin": True}
    request = kernel.send("execute_request", waits)
    for _, message in kernel.messages():
        if message["parent_header"].get("msg_id") == request and message["msg_type"] == "execute_input":
            break
    kernel.interrupt()
    reply, published = kernel.finish(request)
    assert reply["status"] == "error" and reply["ename"] == "KeyboardInterrupt", text(published)
    assert kernel.execute("1 + 1")[0]["status"] == "ok"

    marker = f"TFCLUSTER_TEST={tmp_path}"
    before = processes(marker)
    kernel.restart()
    assert kernel.execute("x")[0]["ename"] == "NameError", "a new Python"
    wait_for("the end of the cluster that the kernel owned", lambda: not set(before) & set(processes(marker)))
    kernel.end()
    wait_for("the end of all processes", lambda: not processes(marker))


def test_kernelspec_of_an_environment(user: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The wheel's kernelspec starts "python": VS Code lists it for the environment that has it, and nowhere else."""
    environment = tmp_path / "environment"
    folder = environment / "share" / "jupyter" / "kernels" / "tfcluster"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "wheel" / "kernel.json", folder)
    (spec,) = [s for s in vscode.find(user, (environment,)) if s["prefix"] == environment]
    assert spec["argv"][1] == str(folder / "launch.py")
    elsewhere = {**user, "JUPYTER_PATH": str(environment / "share" / "jupyter")}
    assert spec["file"] not in [s["file"] for s in vscode.find(elsewhere)]
