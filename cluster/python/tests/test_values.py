"""The values that verbs return."""

from __future__ import annotations

import fcntl
import resource
import socket

import pytest

from tfcluster import feed_link, frontend, gate, jsonlines, values


def test_history_converts_to_a_data_frame() -> None:
    """Metrics that are reported at different steps are joined by step, and nothing is lost as plain lists."""
    history = values.make(
        {
            "type": "Run",
            "history": {"loss": [3.0, 2.0, 1.0], "val_loss": [2.5]},
            "steps": {"loss": [1, 17, 32], "val_loss": [32]},
        }
    ).history
    assert history["loss"] == [3.0, 2.0, 1.0] and history.steps["val_loss"] == [32]
    assert history.rows() == [
        {"step": 1, "loss": 3.0},
        {"step": 17, "loss": 2.0},
        {"step": 32, "loss": 1.0, "val_loss": 2.5},
    ]
    pandas = pytest.importorskip("pandas")
    frame = history.to_pandas()
    assert list(frame.columns) == ["loss", "val_loss"] and list(frame.index) == [1, 17, 32]
    assert frame.val_loss.isna().tolist() == [True, True, False]
    assert values.make({"type": "Run"}).history.to_pandas().empty and pandas is not None


def test_answers_are_plain_data() -> None:
    """What status, history and gpus return are dicts, lists and runs."""
    status = values.make({"type": "Answer", "data": {"name": "local-1", "run": {"id": 3}}})
    assert isinstance(status, dict) and status["run"]["id"] == 3
    runs = values.make({"type": "Answer", "data": [{"type": "Run", "id": 3, "state": "finished"}]})
    assert isinstance(runs, list) and runs[0].id == 3 and runs[0].state == "finished"
    assert values.make({"type": "Answer", "data": {"type": "Run", "id": 4}}).id == 4
    assert values.make({"type": "Answer", "data": None}) == []


def test_answers_are_not_shown_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that has shown the view does not show the value too; a later cell does."""
    cell = [7]
    monkeypatch.setattr(frontend, "cell", lambda: cell[0])
    answer = values.shown({"type": "Answer", "data": [{"index": 0}]})
    assert answer._ipython_display_() is None
    cell[0] = 8
    with pytest.raises(NotImplementedError):
        answer._ipython_display_()


def test_many_open_files() -> None:
    """A notebook with more than 1,023 open files: its connections have descriptors that select.select refuses."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most[1] != resource.RLIM_INFINITY and most[1] < 1100:
        pytest.skip(f"missing: more than {most[1]} open files for a process (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], 1100), most[1]))
    try:
        ours, theirs = socket.socketpair()
        high = socket.socket(fileno=fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD, 1050))
        with ours, theirs, high:
            theirs.sendall(b'{"op": "done"}\n')
            assert next(gate.lines(high)) == {"op": "done"}
            link = feed_link.Link.__new__(feed_link.Link)
            link._received, link._socket = jsonlines.Reader(100, ""), high
            assert not link.waits()
            theirs.sendall(b"\n")
            assert link.waits()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
