"""What a person does in a notebook, and what may go wrong: through the real kernel, on executors of this machine."""

from __future__ import annotations

import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import time

import pytest
from conftest import Notebook, alive, processes, wait_for

RESERVE = "%tfcluster reserve --workers 2 --no-zygote --framework none --idle 60s"
FOREVER = """%%tfcluster start
import time
print("here", flush=True)
while True:
    time.sleep(0.05)
"""
MAIN_FUN = """
def main_fun(args, ctx):
    import sys
    print("hello from", ctx.job_name, ctx.task_index, args, file=sys.stderr)
    ctx.report(step=3, loss=0.25)
    return {"n": factor * len(args), "w": ctx.num_workers}
factor = 21
"""


def test_a_program_from_the_notebook(shared: Notebook) -> None:
    """reserve, start, wait: lines, values, Out and _."""
    cell = shared.ok(RESERVE)
    assert "2 executors = 2 workers" in cell.all
    assert "Cluster(" in cell.result
    shared.ok(MAIN_FUN)
    words = "x {factor} '$factor'"
    shared.ok(f"%tfcluster start main_fun {words}")
    cell = shared.ok("%tfcluster wait")
    assert "[worker:0] hello from worker 0 ['x', '21', '$factor']" in cell.stderr, cell.all
    assert "[worker:1] hello from worker 1" in cell.stderr
    assert "finished" in cell.all
    count = cell.count
    assert shared.ok(f"Out[{count}].result, _{count}.metrics, In[{count}]").result == (
        "({'n': 63, 'w': 2}, {'loss': 0.25}, '%tfcluster wait')"
    )
    cell = shared.ok("run = %tfcluster status\nfor i in range(1):\n    %tfcluster history\nprint('after')")
    assert "main_fun" in cell.all and cell.text.rstrip().endswith("after")
    assert shared.ok("1+1").count == cell.count + 1
    shared.ok("%tfcluster shutdown")


def test_help_and_completion(shared: Notebook) -> None:
    """--help and -h as in a shell; Tab also behind an assignment."""
    for line in "%tfcluster --help", "%tfcluster -h":
        assert "reserve" in shared.ok(line).all
    for line in "%tfcluster logs --help", "%tfcluster logs -h", "x = %tfcluster logs --help":
        assert "--lines" in shared.ok(line).all
    assert shared.completions("run = %tfcluster wa") == shared.completions("%tfcluster wa") == ["wait"]


def test_python_api(shared: Notebook) -> None:
    """The same by calls, with the function as an object."""
    shared.ok(MAIN_FUN)
    cell = shared.ok(
        "import tfcluster\n"
        "with tfcluster.reserve(workers=2, zygote=False) as c:\n"
        "    run = c.start(main_fun, ['a', 'b'])\n"
        "    run.wait()\n"
        "    print(run.result, run.state)\n"
    )
    assert "{'n': 42, 'w': 2} finished" in cell.text, cell.all


def test_plain_ipykernel(prefix: pathlib.Path, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """%load_ext tfcluster in the kernel that everybody has."""
    kernels = tmp_path / "share" / "jupyter" / "kernels" / "plain"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text(
        json.dumps(
            {
                "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                "display_name": "plain",
                "language": "python",
            }
        )
    )
    package = pathlib.Path(__file__).resolve().parents[2] / "cluster" / "python"
    book = Notebook(tmp_path, {**env, "PYTHONPATH": str(package)}, tmp_path, "plain")
    try:
        book.ok("%load_ext tfcluster")
        assert "reserve" in book.ok("%tfcluster?").all
        book.ok(RESERVE)
        book.ok(MAIN_FUN)
        cell = book.ok("%tfcluster start --wait main_fun one")
        assert "[worker:1] hello from worker 1 ['one']" in cell.all
        assert book.ok("_.result").result == "{'n': 21, 'w': 2}"
        assert "UsageError" in book.fails("%tfcluster reserve --wrokers 3").error
        assert book.completions("run = %tfcluster wa") == ["wait"] and "wait" in book.completions("%tfcluster wa")
        assert "--lines" in book.ok("%tfcluster logs --help").all
        failed = book.fails("%%tfcluster start --wait\nimport os\n1 / 0\n")
        assert f"Cell In[{failed.count}], line 3, in <module>" in failed.error, failed.error
    finally:
        book.close()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%tfcluster reserv", "reserve"),
        ("%tfcluster reserve --wrokers 2", "--workers"),
        ("%tfcluster reserve --workers", "--workers"),
        ("%tfcluster reserve --workers -3", "--workers"),
        ("%tfcluster reserve --workers 99999999999999999999", "--workers"),
        ("%tfcluster reserve --workers two", "--workers"),
        ("%tfcluster reserve --memory 4parsecs", "--memory"),
        ("%tfcluster reserve --workers 0", "0"),
        ("%tfcluster reserve --cpus 4000 --workers 1", "this machine has"),
        ("%tfcluster reserve --gpus 64 --workers 1", "GPU"),
        ("%tfcluster reserve --backend spark", "--master"),
        ("%tfcluster reserve --backend yarn", "HADOOP_CONF_DIR"),
        ("%tfcluster reserve --backend moon", "moon"),
        ("%tfcluster reserve --name ../../etc", "name"),
        ("%tfcluster start main_fun {1/0}", "ZeroDivisionError"),
        ("%tfcluster start main_fun $nobody", "nobody"),
        ("%tfcluster start 'unclosed", "closed"),
        ("%tfcluster logs --grep (", "grep"),
        ("%tfcluster logs -n many", "--lines"),
        ("%tfcluster logs --task worker:x", "task"),
        ("%tfcluster status -c nobody", "nobody"),
        ("%tfcluster attach nobody", "nobody"),
        ("%tfcluster train df --uneven often", "often"),
        ("%tfcluster evaluate nothing --epochs 2", "--epochs"),
        ("%tfcluster tensorboard --run x", "run"),
        ("%tfcluster shutdown --foce", "--force"),
    ],
)
def test_bad_input_is_one_clear_line(shared: Notebook, line: str, says: str) -> None:
    """Slips of the keyboard: one line, no traceback, kernel intact."""
    shared.ok("def main_fun(args, ctx): pass")
    cell = shared.fails(line)
    assert says in cell.error, cell.error
    assert "Traceback" not in cell.error
    assert len(cell.error.strip().splitlines()) <= 3, cell.error
    assert shared.ok("1+1").result == "2"


def test_programs_that_cannot_travel(shared: Notebook) -> None:
    """A main_fun that does not pickle names what does not; the cluster stays."""
    shared.ok(RESERVE)
    shared.ok("import threading\nlock = threading.Lock()\ndef main_fun(args, ctx):\n    with lock: pass")
    cell = shared.fails("%tfcluster start main_fun")
    assert "lock" in cell.error and "Traceback" not in cell.error, cell.error
    for line in ("start no_such_function", "start ./no_such_script.py"):
        cell = shared.fails("%tfcluster " + line)
        assert line.split()[-1].strip("./") in cell.error and "Traceback" not in cell.error, cell.error
    shared.ok("def main_fun(args, ctx): import a_module_of_nobody")
    cell = shared.fails("%tfcluster start --wait main_fun")
    assert "ModuleNotFoundError" in cell.error, cell.error
    assert "ready" in shared.ok("%tfcluster status").all


def test_now_beside_a_cell_that_hangs(notebook: Notebook) -> None:
    """status --now and reset --now while Python sleeps; a queued one says what it waits for."""
    notebook.ok(RESERVE)
    notebook.ok(FOREVER)
    hangs = notebook.send("import time\ntime.sleep(600)")
    assert "running" in notebook.ok("%tfcluster status --now").all
    notebook.ok("%tfcluster reset --now")
    assert "stopped" in notebook.ok("%tfcluster history --now").all
    waits: set[str] = set()

    def hinted() -> bool:
        time.sleep(0.5)  # cells in one breath are Run All's: those need no hint
        waits.add(notebook.send("%tfcluster status"))
        while True:
            try:
                message = notebook.client.get_iopub_msg(timeout=0.5)
            except queue.Empty:
                return False
            if message["parent_header"].get("msg_id") in waits and "add --now" in str(message["content"]):
                return True

    wait_for("the hint", hinted)
    notebook.manager.interrupt_kernel()
    notebook.finish(hangs)


def test_python_killed(notebook: Notebook) -> None:
    """kill -9 of Python: the cell is answered, the cluster is untouched, a fresh Python comes."""
    notebook.ok(RESERVE)
    cell = notebook.fails("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert cell.ename == "PythonDied" and "clusters are not" in cell.error
    assert "ready" in notebook.ok("%tfcluster status --now").all
    notebook.ok(MAIN_FUN)
    assert "hello from" in notebook.ok("%tfcluster start --wait main_fun a").all


def driver_of(env: dict[str, str]) -> int:
    """The pid of the one driver."""
    return next(
        pid
        for pid, command in processes(f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}").items()
        if command.endswith(" driver")
    )


def test_driver_killed(notebook: Notebook, env: dict[str, str]) -> None:
    """kill -9 of the driver: said in words; reset takes the cluster up and it works again."""
    notebook.ok(RESERVE)
    notebook.ok(FOREVER)
    os.kill(driver_of(env), signal.SIGKILL)
    cell = notebook.fails("%tfcluster wait")
    assert "driver" in cell.error, cell.error
    assert "reset" in notebook.run("%tfcluster status --now").all
    notebook.ok("%tfcluster reset --now")
    notebook.ok(MAIN_FUN)
    assert "hello from" in notebook.ok("%tfcluster start --wait main_fun a").all
    notebook.ok("%tfcluster shutdown")


def test_worker_killed(shared: Notebook) -> None:
    """kill -9 of a worker during wait: the cell names it, its signal and its last line; start goes on."""
    shared.ok(RESERVE)
    shared.ok(
        "%%tfcluster start\nimport os, sys, time\n"
        "print('my last words', os.getpid(), file=sys.stderr, flush=True)\ntime.sleep(600)"
    )
    waits = shared.send("%tfcluster wait")
    pids: list[int] = []

    def told() -> bool:
        text = shared.ok("%tfcluster logs --now --task worker:1").all
        pids[:] = [int(line.split()[-1]) for line in text.splitlines() if "my last words" in line]
        return bool(pids)

    # Output of both cells interleaves on one channel; what the waiting cell shows is read again from its end.
    wait_for("the worker's line", told)
    os.kill(pids[0], signal.SIGKILL)
    wait_for("the worker's end", lambda: not alive(pids[0]))
    cell = shared.finish_reply(waits)
    assert cell["ename"] == "RunFailed"
    text = "\n".join(cell["traceback"])
    assert "worker:1" in text and "SIGKILL" in text and "my last words" in text, text
    shared.ok(MAIN_FUN)
    assert "hello from" in shared.ok("%tfcluster start --wait main_fun a").all


def test_interrupts(shared: Notebook) -> None:
    """The first interrupt of wait stops the run with time to save; the cluster stays."""
    shared.ok(RESERVE)
    shared.ok("%%tfcluster start\nimport time\ntry:\n    time.sleep(600)\nfinally:\n    print('saved', flush=True)")
    waits = shared.send("%tfcluster wait")
    wait_for("the wait", lambda: "running" in shared.ok("%tfcluster status --now").all)
    shared.manager.interrupt_kernel()
    reply = shared.finish_reply(waits)
    assert reply["status"] == "error" and reply["ename"] in ("KeyboardInterrupt", "RunFailed"), reply
    assert "saved" in shared.ok("%tfcluster logs").all
    shared.ok(FOREVER)
    cell = shared.send("%tfcluster logs -f")
    wait_for("the line", lambda: "here" in shared.ok("%tfcluster logs --now").all)
    shared.manager.interrupt_kernel()
    shared.finish_reply(cell)
    assert "running" in shared.ok("%tfcluster status").all


def test_restart_between_start_and_wait(notebook: Notebook) -> None:
    """Restart Kernel leaves the cluster; the new kernel says so in a line and wait goes on."""
    notebook.ok(RESERVE)
    notebook.ok(
        "%%tfcluster start\nimport time\nfor i in range(60):\n    print('tick', i, flush=True)\n    time.sleep(0.1)"
    )
    notebook.client.stop_channels()
    notebook.manager.restart_kernel()
    notebook.connect()
    cell = notebook.ok("%tfcluster wait")
    assert "attached" in cell.all, cell.all
    assert "finished" in cell.all and "tick 59" in cell.all, cell.all


def test_kernel_shutdown_releases(notebook: Notebook, env: dict[str, str]) -> None:
    """A shutdown request releases the cluster, also while a run is on."""
    notebook.ok(RESERVE)
    notebook.ok(FOREVER)
    notebook.close()
    wait_for("the end of everything", lambda: not processes(f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"))


def test_kernel_killed(notebook: Notebook, env: dict[str, str], prefix: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """kill -9 of the kernel leaves a cluster that attach finds, and that ends by itself when it is idle."""
    marker = f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"
    notebook.ok(RESERVE.replace("60s", "10s"))
    python = int(notebook.ok("import os; os.getpid()").result)
    os.kill(notebook.pid, signal.SIGKILL)
    wait_for("the end of the kernel's Python", lambda: not alive(python))
    command = [env["TFCLUSTER_BINARY"], "status", "--all"]
    out = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert "local-1" in out, out
    wait_for("the idle cluster's end", lambda: not processes(marker))


def test_detached_run_survives_the_kernel(notebook: Notebook, env: dict[str, str]) -> None:
    """detach: the kernel's shutdown leaves the cluster to the run."""
    notebook.ok(RESERVE)
    notebook.ok(FOREVER)
    notebook.ok("%tfcluster detach")
    notebook.close()
    tool = [env["TFCLUSTER_BINARY"]]
    out = subprocess.run([*tool, "status"], env=env, capture_output=True, text=True, check=True).stdout
    assert "running" in out, out
    subprocess.run([*tool, "shutdown", "--force"], env=env, check=True, stdout=subprocess.DEVNULL)
