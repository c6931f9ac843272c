"""How far a program is, as the driver hears it."""

from __future__ import annotations

import time

from tfcluster.activity import AFTER_TRAINING, CHECKPOINT, FIRST_STEP, STEP, Activity


def test_nothing_is_sent_before_a_mark() -> None:
    begun: list[str] = []
    activity = Activity(lambda: begun.append("begun"))
    activity.program_ended()
    with activity.during(CHECKPOINT):
        pass
    assert activity.changes() is None and not begun
    activity.enter(FIRST_STEP)
    activity.mark()
    assert begun == ["begun"]
    assert activity.changes() == {"phase": FIRST_STEP, "marks": 2, "seconds": activity._at}
    assert activity.changes() is None


def test_the_counter_with_most_weight_counts() -> None:
    activity = Activity()
    activity.operation_ended(activity.operation_begins())
    activity.operation_ended(activity.operation_begins())
    sent = activity.changes()
    assert sent and (sent["counter"], sent["step"], sent["phase"]) == ("operations", 2, STEP)
    activity.reported(7, last=False)
    sent = activity.changes()
    assert sent and (sent["counter"], sent["step"]) == ("ctx", 7)
    activity.batch_ended(3)
    sent = activity.changes()
    assert sent and (sent["counter"], sent["step"]) == ("batches", 3)


def test_the_first_operation_is_no_step_before_it_has_ended() -> None:
    activity = Activity()
    began = activity.operation_begins()
    sent = activity.changes()
    assert sent and sent["phase"] == FIRST_STEP and "counter" not in sent
    activity.operation_ended(began)
    assert activity.phase == STEP


def test_the_last_step_ends_training() -> None:
    activity = Activity()
    activity.reported(1, last=False)
    assert activity.phase == STEP
    activity.reported(2, last=True)
    assert activity.phase == AFTER_TRAINING


def test_a_phase_is_left_as_it_was_entered() -> None:
    activity = Activity()
    activity.reported(1, last=False)
    try:
        with activity.during(CHECKPOINT):
            assert activity.phase == CHECKPOINT
            raise ValueError
    except ValueError:
        pass
    assert activity.phase == STEP


def test_time_outside_of_operations() -> None:
    activity = Activity()
    for _ in range(4):
        time.sleep(0.02)
        activity.operation_ended(activity.operation_begins() - 10)  # as if it had taken 10 s
    sent = activity.changes()
    assert sent and sent["own_seconds"] == 0.0  # not negative
    activity = Activity()
    for _ in range(4):
        time.sleep(0.02)
        began = activity.operation_begins()
        time.sleep(0.1)
        activity.operation_ended(began)
    sent = activity.changes()
    assert sent and sent["seconds"] - sent["own_seconds"] >= 0.4


def test_time_between_batches() -> None:
    activity = Activity()
    for step in range(4):
        activity.batch_begins()
        activity.batch_ended(step)
        time.sleep(0.05)
    sent = activity.changes()
    assert sent and sent["own_seconds"] >= 0.15
    # A batch that ends after the next one has begun, in another thread: there is no time between them.
    activity = Activity()
    activity.batch_begins()
    for step in range(4):
        activity.batch_begins()
        activity.batch_ended(step)
        time.sleep(0.05)
    sent = activity.changes()
    assert sent and sent["own_seconds"] == 0.0


def test_marks_are_sent_once_a_second(agent_and_channel: tuple) -> None:
    agent, channel = agent_and_channel
    began = time.monotonic()
    for step in range(1000):
        channel.activity.reported(step, last=False)
        time.sleep(0.001)
    first = agent.read()
    assert first["op"] == "activity" and first["step"] <= 999
    while (got := agent.read())["step"] < 999:
        pass
    assert got["marks"] == 1000 and time.monotonic() - began >= 0.5
