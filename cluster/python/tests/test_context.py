"""ctx, without TensorFlow."""

import concurrent.futures
import os
import threading
import traceback
from pathlib import Path

import pytest

from tfcluster import context, hints
from tfcluster.channel import Channel, number
from tfcluster.context import Context

SPEC = {"chief": ["a:1"], "worker": ["b:2", "c:3"], "ps": ["d:4"]}


def made(channel: Channel | None = None, **said) -> Context:
    return Context(said, channel or Channel(None))


@pytest.mark.parametrize(
    ("said", "is_chief", "worker_num"),
    [
        ({"job_name": "chief", "task_index": 0, "cluster_spec": SPEC}, True, 0),
        ({"job_name": "worker", "task_index": 0, "cluster_spec": SPEC}, False, 1),
        ({"job_name": "worker", "task_index": 0, "cluster_spec": '{"worker": ["b:2"]}'}, True, 0),
        ({"job_name": "worker", "task_index": 1, "cluster_spec": {"worker": ["b:2", "c:3"]}}, False, 1),
        ({"job_name": "evaluator", "task_index": 0, "cluster_spec": {"worker": ["b:2"]}}, False, 0),
    ],
)
def test_who_is_chief(said: dict, is_chief: bool, worker_num: int) -> None:
    ctx = made(**said)
    assert (ctx.is_chief, ctx.worker_num) == (is_chief, worker_num)


@pytest.mark.parametrize(
    ("fs", "path", "want"),
    [
        ("file://", "data", "/work/data"),
        ("file://", "/data", "/data"),
        ("hdfs://nn:8020", "data", "hdfs://nn:8020/user/me/data"),
        ("viewfs://x/", "data", "viewfs://x/user/me/data"),
        ("s3://x", "data", "s3://x/work/data"),
        ("hdfs://nn:8020/", "/data", "hdfs://nn:8020/data"),
        ("hdfs://nn:8020", "s3://bucket/x", "s3://bucket/x"),
        ("hdfs://nn:8020", "file:/tmp/x", "file:/tmp/x"),
    ],
)
def test_absolute_path(fs: str, path: str, want: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "me")
    assert made(default_fs=fs, working_dir="/work").absolute_path(path) == want


def test_reports_are_merged_and_bounded(agent_and_channel) -> None:
    agent, channel = agent_and_channel
    ctx = made(channel)
    for step in range(5000):
        ctx.report(step=step, loss=1 / (step + 1), bad=float("nan"), text="x", total_steps=5000)
    channel.flush()
    reports = []
    while not reports or reports[-1]["step"] != 4999:
        reports.append(agent.read())
    assert len(reports) < 100
    assert reports[-1]["metrics"] == {"loss": pytest.approx(1 / 5000)}
    assert reports[-1]["total_steps"] == 5000 and reports[-1]["source"] == "ctx"


def test_reporting_goes_on_when_the_agent_is_gone(agent_and_channel) -> None:
    agent, channel = agent_and_channel
    agent.close()
    ctx = made(channel)
    for step in range(3):
        ctx.report(step=step)
        channel.flush()


def test_barrier(agent_and_channel) -> None:
    agent, channel = agent_and_channel
    ctx = made(channel)
    arrived = threading.Thread(target=ctx.barrier, args=("start",))
    arrived.start()
    assert agent.read() == {"op": "barrier", "name": "start"}
    agent.write(op="barrier_released", name="other", error="")
    agent.write(op="barrier_released", name="start", error="")
    arrived.join(30)
    assert not arrived.is_alive()
    agent.write(op="barrier_released", name="end", error="worker:1 is gone")
    with pytest.raises(RuntimeError, match="worker:1 is gone"):
        ctx.barrier("end")
    with pytest.raises(TimeoutError, match="barrier 'never'"):
        ctx.barrier("never", timeout=0.01)
    agent.close()
    with pytest.raises(ConnectionError, match="agent"):
        ctx.barrier("gone")


def write_checkpoint(folder: Path, name: str, when: int) -> None:
    (folder / f"{name}.index").write_text("x")
    os.utime(folder / f"{name}.index", ns=(when, when))
    state = folder / "checkpoint"
    known = state.read_text() if state.exists() else ""
    state.write_text(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n' + known)


def test_checkpoints_of_both_kinds_then_the_end(tmp_path: Path, agent_and_channel) -> None:
    agent, channel = agent_and_channel
    ctx = made(channel, checkpoint_dir=str(tmp_path))
    write_checkpoint(tmp_path, "ckpt-1", 1_000)
    (tmp_path / "epoch-1.weights.h5").write_text("x")
    os.utime(tmp_path / "epoch-1.weights.h5", ns=(2_000, 2_000))
    found = ctx.checkpoints()
    assert next(found) == str(tmp_path / "ckpt-1")
    assert next(found) == str(tmp_path / "epoch-1.weights.h5")
    write_checkpoint(tmp_path, "ckpt-2", 3_000)
    assert next(found) == str(tmp_path / "ckpt-2")
    (tmp_path / "last.keras").write_text("x")
    agent.write(op="training_over")
    assert list(found) == [str(tmp_path / "last.keras")]


def test_sigterm_ends_watching_once(tmp_path: Path, agent_and_channel) -> None:
    _, channel = agent_and_channel
    ctx = made(channel, checkpoint_dir=str(tmp_path))
    assert not ctx.end_watching()
    (tmp_path / "a.keras").write_text("x")
    found = ctx.checkpoints()
    next(found)
    assert ctx.end_watching()
    assert not ctx.end_watching()
    assert list(found) == []


def test_files_of_hdfs_are_copied_by_the_agent(agent_and_channel) -> None:
    agent, channel = agent_and_channel
    ctx = made(channel, job_name="worker", task_index=1, num_workers=2, default_fs="hdfs://nn")
    for answer, want in [
        ({"paths": ["/copies/1/a"]}, ["/copies/1/a"]),
        ({"missing": True, "error": "host1: not there"}, FileNotFoundError),
        ({"error": "host1: no answer"}, OSError),
    ]:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            copies = pool.submit(ctx.local_copy, "/data")
            asked = agent.read()
            assert (asked["op"], asked["uri"], asked["share"]) == ("copy", "hdfs://nn/data", [1, 2])
            agent.write(op="copied", name=asked["name"], **answer)
            if isinstance(want, list):
                assert copies.result(timeout=60) == want
                use = agent.read()["manifest"]["data"]["hdfs://nn/data"]  # although the copy is gone already
                assert (use["by"], use["files"], use["bytes"]) == ("local_copy", 1, 0)
                continue
            with pytest.raises(want, match="host1"):
                copies.result(timeout=60)


def test_what_is_not_there_says_so() -> None:
    with pytest.raises(
        RuntimeError, match="this task is evaluator:0, and only the chief .* where ctx.job_name is chief or worker"
    ):
        made(job_name="evaluator").get_data_feed()
    with pytest.raises(NotImplementedError, match="cannot read s3://x/y: it reads paths, file: and hdfs: only"):
        made(job_name="worker").local_copy("s3://x/y")


def test_the_module_is_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_current", None)
    with pytest.raises(RuntimeError, match="there is no ctx here"):
        context()
    ctx = made()
    monkeypatch.setattr(context, "_current", ctx)
    assert context() is ctx


@pytest.mark.parametrize(
    ("value", "want"), [(1, 1.0), ("2", 2.0), (float("inf"), None), (None, None), ([1], None), (True, 1.0)]
)
def test_number(value, want) -> None:
    assert number(value) == want


def shares(folder: Path, uri: str, n: int = 3) -> list[list[Path]]:
    spec = {"chief": ["a:1"], "worker": ["b:2", "c:3"]}
    each = [("chief", 0), ("worker", 0), ("worker", 1)][:n]
    return [
        [
            Path(p)
            for p in made(
                job_name=job, task_index=i, cluster_spec=spec, num_workers=n, copy_dir=str(folder / f"{job}{i}")
            ).local_copy(uri)
        ]
        for job, i in each
    ]


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "{}/part-*", "{}/**/part-*"])
def test_local_copy_gives_each_worker_its_share(tmp_path: Path, form: str) -> None:
    data = tmp_path / "the data"
    data.mkdir()
    for i in range(7):
        (data / f"part-{i}").write_text(str(i))
    (data / "_SUCCESS").touch()
    (data / ".part-0.crc").touch()
    got = shares(tmp_path, form.format(data))
    assert [[p.name for p in share] for share in got] == [
        ["part-0", "part-3", "part-6"],
        ["part-1", "part-4"],
        ["part-2", "part-5"],
    ]
    assert [p.read_text() for share in got for p in share] == ["0", "3", "6", "1", "4", "2", "5"]
    assert not list(tmp_path.rglob(".part-?????*[!c]"))


def test_local_copy_copies_once_and_again_what_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1")
    ctx = made(job_name="worker", copy_dir=str(tmp_path / "copies"))
    (first,) = ctx.local_copy(str(file))
    before = os.stat(first)
    assert ctx.local_copy(str(file), shard=False) == [first]
    assert os.stat(first) == before
    file.write_text("22")
    (second,) = ctx.local_copy(str(file))
    assert (Path(second).read_text(), Path(first).read_text()) == ("22", "1")


def test_local_copy_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = made(job_name="worker", host="node7", copy_dir=str(tmp_path / "copies"))
    with pytest.raises(FileNotFoundError, match="it does not exist on node7"):
        ctx.local_copy(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="it matches no file on node7"):
        ctx.local_copy(str(tmp_path / "*.csv"))
    with pytest.raises(ValueError, match="shard=False"):
        made(job_name="evaluator").local_copy("x")
    (tmp_path / "big").write_text("x" * 100)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(OSError, match="not enough disk space on node7.*100 bytes needed, 10 free"):
        ctx.local_copy(str(tmp_path / "big"))


def test_a_service_that_failed_is_asked_again(agent_and_channel) -> None:
    """The answer to a later call is the agent's later one."""
    agent, channel = agent_and_channel

    def play() -> None:
        assert agent.read()["op"] == "feed"
        agent.write(op="feed", error="too many open files")
        assert agent.read()["op"] == "feed"
        agent.write(op="feed", socket="/s", key="k")

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        played = pool.submit(play)
        with pytest.raises(OSError, match="caller: too many open files"):
            channel.service("feed", "caller")
        assert channel.service("feed", "caller") == ("/s", "k")
        played.result(60)


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ({"error": "too many open files"}, ["program"]),  # raised by the package: the program's line is the last
        ({"socket": "/s"}, ["program", "service"]),  # KeyError: a fault of the package
    ],
)
def test_frames_of_an_error(agent_and_channel, message: dict, want: list[str]) -> None:
    """A traceback ends with the line of the program that the error is about."""
    agent, channel = agent_and_channel

    def answer() -> None:
        assert agent.read()["op"] == "group"  # an answer that comes before is one to an earlier call
        agent.write(op="group", **message)

    def program() -> None:
        channel.service("group", "all_reduce")

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of either kind
            program()
        answered.result(60)
    frames = traceback.extract_tb(hints.user_frames(caught.value))
    assert [f.name for f in frames][1:] == want
