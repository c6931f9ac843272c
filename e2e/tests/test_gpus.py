"""Tasks on one real NVIDIA GPU, by PyTorch and JAX: who has it, what is measured, and that it is free afterwards."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import Notebook, of_all_workers, processes, wait_for

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU: nvidia-smi is not found"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]
RESERVE = "%tfcluster reserve --backend local --workers 1 --gpus 1 --framework pytorch --idle 5m"
PROGRAMS = """
def device_of(args, ctx):
    import os
    import torch
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [torch.cuda.device_count(), torch.cuda.get_device_name() if torch.cuda.is_available() else "", visible]

def busy(args, ctx):
    import os
    import torch
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    held = torch.empty(4 << 30, device="cuda", dtype=torch.uint8)
    print("computing", flush=True)
    while not os.path.exists(args[0]):
        for _ in range(20):
            b = a @ a
        torch.cuda.synchronize()
        ctx.report(flops=1.0)
    return torch.cuda.memory_allocated()

def too_large(args, ctx):
    import torch
    return torch.empty(1 << 40, device="cuda", dtype=torch.uint8).numel()

def learn(args, ctx):
    import torch
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    feed, first, last = ctx.get_data_feed(), None, None
    while not feed.should_stop():
        batch = feed.next_batch(256)
        if not batch:
            break
        x = torch.tensor(batch, dtype=torch.float32, device="cuda")
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        last = loss.item()
        first = first or last
        ctx.report(loss=last)
    return first, last

def out_of_range(args, ctx):
    import torch
    table = torch.nn.Embedding(10, 4).cuda()
    return table(torch.tensor([3, 12], device="cuda")).sum().item()

def alone(args, ctx):
    import torch
    import torch.distributed as dist
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    ones = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(ones)
    dist.barrier()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).cuda())
    model(torch.ones(3, 4, device="cuda")).sum().backward()
    import tfcluster.collective as collective
    total = collective.all_reduce(ones)
    dist.destroy_process_group()
    return float(ones.sum()), str(getattr(total, "device", type(total)))

def spin(args, ctx):
    import torch
    a = torch.randn(16384, 16384, device="cuda")
    print("computing", flush=True)
    for _ in range(3000):
        b = a @ a
    torch.cuda.synchronize()

def with_jax(args, ctx):
    import jax
    import jax.numpy as jnp
    device = jax.devices()[0]
    total = jax.jit(lambda x: (x @ x).sum())(jnp.ones((2048, 2048)))
    return device.platform, float(total)
"""


@pytest.fixture(autouse=True)
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the GPU for one test at a time, among all workers of pytest-xdist."""
    with (of_all_workers(tmp_path_factory) / "gpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def users_of_gpus() -> str:
    """The processes that compute on the GPUs, as nvidia-smi lists them."""
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def memory_used() -> int:
    """The used memory of the first GPU in MiB."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])


def free_again() -> None:
    """Wait until no memory of the GPU is used but the driver's own."""
    wait_for("the GPU's memory", lambda: memory_used() < 1500)


def test_a_task_has_the_gpu_it_was_given(notebook: Notebook) -> None:
    """One executor has the GPU; a cluster without --gpus sees none; a second one with --gpus learns who has it."""
    notebook.ok(PROGRAMS)
    notebook.ok("%tfcluster reserve --backend local --workers 1 --framework pytorch --name without")
    notebook.ok("%tfcluster start --wait device_of")
    assert notebook.ok("_.result").result == "[0, '', '-1']"
    assert re.search(r"GPUs +NVIDIA .* GiB", notebook.ok("%tfcluster doctor").all)
    notebook.ok(RESERVE + " --name first")
    notebook.ok("%tfcluster start --wait device_of -c first")
    seen = notebook.ok("_.result").result
    assert seen.startswith("[1, 'NVIDIA") and "GPU-" in seen, seen
    refused = notebook.fails(RESERVE + " --name second")
    assert "only 0 of 1 are free: GPU 0 is held by executor 0 of cluster first" in refused.error, refused.all
    assert re.search(r" 0  NVIDIA .* GiB .* worker:0", notebook.ok("%tfcluster gpus -c first").all)
    notebook.ok("%tfcluster shutdown -c first")
    notebook.ok(RESERVE + " --name second")
    notebook.ok("%tfcluster shutdown -c second")
    notebook.ok("%tfcluster shutdown -c without")
    free_again()


def test_use_is_measured(notebook: Notebook, tmp_path: pathlib.Path) -> None:
    """The load and the memory that status has are those of the program."""
    notebook.ok(PROGRAMS)
    notebook.ok(RESERVE)
    notebook.ok(f"%tfcluster start busy {tmp_path}/enough")

    def measured() -> bool:
        shown = notebook.ok("s = %tfcluster status")
        if not re.search(r"worker:0 .* \d+ %  +\d+ %  +[45]\.\d GiB", shown.all):
            return False
        notebook.ok("g = %tfcluster gpus\nx, t = s['executors'][0], s['run']['tasks'][0]")
        loads = notebook.ok("print(x['gpu_percent'], t['gpu_percent'], g[0]['utilization'])").text.split()
        return all(float(load) > 50 for load in loads)

    wait_for("the load and the memory of the program", measured)
    sizes = notebook.ok("print(x['gpu_used_bytes'] >> 20, t['gpu_used_bytes'] >> 20, g[0]['used_bytes'] >> 20)").text
    for used in map(int, sizes.split()):
        assert 0 <= used - memory_used() < 1024, (sizes, memory_used())  # NVML counts what the driver reserves
    (tmp_path / "enough").touch()
    notebook.ok("%tfcluster wait")
    assert int(notebook.ok("_.result").result) > 4 << 30
    notebook.ok("%tfcluster shutdown")
    free_again()


def test_the_gpu_of_a_killed_task_is_free(notebook: Notebook, env: dict[str, str]) -> None:
    """kill -9 of a task, and of the kernel with the driver, frees the GPU and its memory."""
    notebook.ok(PROGRAMS)
    notebook.ok(RESERVE.replace("5m", "5s"))
    notebook.ok("%tfcluster start busy never")
    wait_for("the program on the GPU", lambda: memory_used() > 4096)
    notebook.ok("s = %tfcluster status\npid = s['run']['tasks'][0]['pid']")
    task = int(notebook.ok("pid").result)
    assert [int(line.split(",")[0]) for line in users_of_gpus().splitlines()] == [task]
    os.kill(task, signal.SIGKILL)
    notebook.fails("%tfcluster wait")
    free_again()
    notebook.ok("%tfcluster start busy never")
    wait_for("the program on the GPU", lambda: memory_used() > 4096)
    marker = f"TFCLUSTER_TEST={env['TFCLUSTER_TEST']}"
    drivers = [pid for pid, command in processes(marker).items() if command.endswith("tfcluster driver")]
    for pid in [*drivers, notebook.pid]:
        os.kill(pid, signal.SIGKILL)
    assert drivers
    wait_for("the end of all processes", lambda: not processes(marker))
    free_again()
    assert users_of_gpus() == ""


def test_a_stranger_on_the_gpu_is_named(notebook: Notebook, tmp_path: pathlib.Path) -> None:
    """reserve does not take a GPU on which another process computes; it names that."""
    script = tmp_path / "stranger.py"
    script.write_text("import torch, time\nx = torch.zeros(1 << 28, device='cuda')\ntime.sleep(600)\n")
    stranger = subprocess.Popen([sys.executable, script.name], cwd=tmp_path)
    try:
        wait_for("the stranger on the GPU", lambda: memory_used() > 1024)
        refused = notebook.fails(RESERVE)
        assert f"GPU 0 is used by pid {stranger.pid}" in refused.error and "stranger.py" in refused.error, refused.all
    finally:
        stranger.kill()
        stranger.wait()
    free_again()
    notebook.ok(RESERVE)
    notebook.ok("%tfcluster shutdown")


def test_too_little_memory(notebook: Notebook) -> None:
    """What the framework says of the GPU's memory is the cause in the cell, and the executor serves the next run."""
    notebook.ok(PROGRAMS)
    notebook.ok(RESERVE)
    failed = notebook.fails("%tfcluster start --wait too_large")
    assert "out of memory" in failed.error.splitlines()[0], failed.all
    notebook.ok("%tfcluster start --wait device_of")
    notebook.ok("%tfcluster shutdown")


def test_an_error_in_a_kernel(notebook: Notebook) -> None:
    """An assertion of a kernel fails the run with its cause, and the next run has a GPU that works."""
    notebook.ok(PROGRAMS)
    notebook.ok(RESERVE)
    failed = notebook.fails("%tfcluster start --wait out_of_range")
    assert "device-side assert" in failed.error.splitlines()[0], failed.all
    notebook.ok("%tfcluster start --wait device_of")
    notebook.ok("%tfcluster shutdown")


def test_nccl(notebook: Notebook) -> None:
    """A process group of NCCL is made from what a task knows."""
    notebook.ok(PROGRAMS)
    notebook.ok(RESERVE)
    notebook.ok("%tfcluster start --wait alone")
    assert notebook.ok("_.result").result == "(1048576.0, 'cuda:0')"
    notebook.ok("%tfcluster shutdown")


def test_a_task_that_waits_for_the_gpu(notebook: Notebook) -> None:
    """stacks and why name the line that waits; stop ends it and frees the GPU."""
    notebook.ok(PROGRAMS)
    notebook.ok(RESERVE)
    notebook.ok("%tfcluster start spin")
    wait_for("the program on the GPU", lambda: memory_used() > 2048)
    line = re.compile(r"> Cell In\[1\]:\d+ +spin ")
    wait_for("the line that waits", lambda: line.search(notebook.ok("%tfcluster stacks").all) is not None)
    says = "worker:0 computes: nothing shows that the run hangs"
    wait_for("the word of why", lambda: says in notebook.ok("%tfcluster why").all)
    notebook.ok("%tfcluster stop")
    free_again()
    notebook.ok("%tfcluster shutdown")


def test_records_are_trained_on(notebook: Notebook) -> None:
    """train feeds a program that computes on the GPU."""
    notebook.ok(PROGRAMS)
    notebook.ok(RESERVE)
    notebook.ok("import numpy as np\nrecords = np.random.default_rng(0).normal(size=(50_000, 4)).astype('float32')")
    notebook.ok("%tfcluster start learn")
    notebook.ok("run = %tfcluster train records --epochs 2")
    assert notebook.ok("run.result[1] < run.result[0] / 10").result == "True", notebook.ok("run.result").result
    notebook.ok("%tfcluster shutdown")


def test_jax(notebook: Notebook) -> None:
    """JAX in a task computes on the GPU."""
    pytest.importorskip("jax")
    notebook.ok(PROGRAMS)
    notebook.ok(RESERVE.replace("pytorch", "jax"))
    notebook.ok("%tfcluster start --wait with_jax")
    assert notebook.ok("_.result").result == "('gpu', 8589934592.0)"
    notebook.ok("%tfcluster shutdown")
    free_again()
