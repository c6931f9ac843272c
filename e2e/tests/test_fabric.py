"""The network of executors: what tasks get for NCCL and gloo on this machine, and with the files of an RDMA device."""

from __future__ import annotations

import ast
import json
import pathlib
from typing import Any

import pytest
from conftest import Notebook

pytestmark = pytest.mark.engines

VARIABLES = """
def main_fun(args, ctx):
    import os

    print("node:1:2 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>")
    print("node:1:2 [0] NCCL INFO Using network Socket", flush=True)
    return {k: v for k, v in os.environ.items() if k.startswith(("NCCL_", "GLOO_"))}
"""

DEVICE = {
    "node_type": "1: CA",
    "ports/1/state": "4: ACTIVE",
    "ports/1/rate": "100 Gb/sec (4X EDR)",
    "ports/1/link_layer": "Ethernet",
    "ports/1/gids/0": "fe80:0000:0000:0000:ba59:9fff:fe00:0001",
    "ports/1/gids/1": "0000:0000:0000:0000:0000:ffff:0a00:000b",
    "ports/1/gid_attrs/types/0": "IB/RoCE v1",
    "ports/1/gid_attrs/types/1": "RoCE v2",
    "ports/1/gid_attrs/ndevs/0": "eth0",
    "ports/1/gid_attrs/ndevs/1": "eth0",
}
SUM = """
def summed(args, ctx):
    import numpy as np
    import tfcluster.collective as collective

    return float(collective.all_reduce(np.ones(1000, dtype="float32")).sum())
"""
RESERVE = "%tfcluster reserve --workers 2 --no-zygote --framework none"


@pytest.fixture
def root(env: dict[str, str], tmp_path: pathlib.Path) -> pathlib.Path:
    """The root of the file system in which agents look for devices; a test has it before the notebook starts."""
    path = tmp_path / "root"
    path.mkdir()
    env["TFCLUSTER_TEST_ROOT"] = str(path)
    return path


def started(notebook: Notebook, options: str = "") -> dict[str, str]:
    """Return the variables of worker 0 in a run that is started with these options."""
    cell = notebook.ok(f"run = %tfcluster start --wait {options} main_fun\nrun.results['worker:0']")
    return ast.literal_eval(cell.result)


def status(notebook: Notebook) -> dict[str, Any]:
    """Return what status --fabric says."""
    return json.loads(notebook.ok("%tfcluster status --fabric --json").text)


@pytest.mark.usefixtures("root")  # a machine that has a device would differ
def test_without_a_device(notebook: Notebook) -> None:
    """Nothing is set but the interface, --env wins, RDMA is refused in one line, and NCCL's lines are read."""
    cell = notebook.ok(RESERVE)
    assert "network:" not in cell.all  # on one host it says nothing
    notebook.ok(VARIABLES)
    assert started(notebook) == {"NCCL_SOCKET_IFNAME": "=lo", "GLOO_SOCKET_IFNAME": "lo"}
    said = status(notebook)
    assert said["link"] == "Ethernet" and said["why"] == "" and not said["executors"][0]["ports"]
    assert said["executors"][1]["chosen"]["network"] == "Socket", said
    assert said["executors"][1]["chosen"]["devices"] == ["lo:127.0.0.1"]

    assert started(notebook, "--env NCCL_SOCKET_IFNAME=x") == {"NCCL_SOCKET_IFNAME": "x", "GLOO_SOCKET_IFNAME": "lo"}
    table = "\n".join(notebook.ok("%tfcluster status --fabric").plain)
    assert "instead of =lo" in table and "start --env" in table, table

    assert started(notebook, "--fabric tcp")["NCCL_IB_DISABLE"] == "1"
    cell = notebook.fails("%tfcluster start --fabric rdma main_fun")
    assert "--fabric rdma: no executor has an RDMA device" in cell.error, cell.all
    cell = notebook.fails("%tfcluster start --fabric wifi main_fun")
    assert "auto" in cell.error and "rdma" in cell.error, cell.all


def add_device(root: pathlib.Path) -> None:
    """Write the files of a RoCE device below a root."""
    for name, content in DEVICE.items():
        path = root / "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    for name, content in {"sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n", "dev/infiniband/uverbs0": ""}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root / "sys/class/infiniband").mkdir()
    target = "../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0"
    (root / "sys/class/infiniband/mlx5_0").symlink_to(target)


def test_with_a_device(root: pathlib.Path, notebook: Notebook) -> None:
    """The files of a RoCE device below another root give the settings for it."""
    add_device(root)
    notebook.ok(RESERVE)
    notebook.ok(VARIABLES)
    said = status(notebook)
    port = said["executors"][0]["fabric"]["ports"][0]
    assert port["device"] == "mlx5_0" and port["link"] == "RoCE v2" and port["rate"] == 100
    if said["why"]:  # a low limit of locked memory, which is this machine's own
        assert "of memory may be locked" in said["why"], said
        assert started(notebook)["NCCL_IB_DISABLE"] == "1"
        return
    got = started(notebook)
    assert got == {"NCCL_SOCKET_IFNAME": "=lo", "GLOO_SOCKET_IFNAME": "lo", "NCCL_IB_GID_INDEX": "1"}, got
    assert started(notebook, "--fabric rdma")["NCCL_NET"] == "IB"
    assert started(notebook, "--env NCCL_IB_GID_INDEX=7")["NCCL_IB_GID_INDEX"] == "7"


@pytest.fixture
def two_hosts(env: dict[str, str]) -> None:
    """Have the executors of this machine count as two hosts."""
    env["TFCLUSTER_TEST_HOSTS"] = "2"


@pytest.mark.usefixtures("two_hosts")
def test_collective_without_the_device(root: pathlib.Path, notebook: Notebook) -> None:
    """Where the port that was chosen cannot be used after all, collective calls use TCP, and each task says why."""
    add_device(root)
    notebook.ok(RESERVE)
    notebook.ok(SUM)
    why = status(notebook)["why"]
    cell = notebook.ok("run = %tfcluster start --wait summed\nrun.results")
    assert ast.literal_eval(cell.result) == {"worker:0": 2000.0, "worker:1": 2000.0}, cell.all
    notes = cell.all.count("collective calls between hosts use TCP, not RDMA by mlx5_0: ")
    assert notes == (0 if why else 2), cell.all
    cell = notebook.ok("run = %tfcluster start --wait --fabric tcp summed\nrun.results")
    assert "not RDMA by" not in cell.all, cell.all
