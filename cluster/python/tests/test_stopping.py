"""How a stop reaches a program: at the agreed step, or in the middle of what it does."""

import re
import signal
import threading
from pathlib import Path

import pytest
from test_runner import finish, start

from tfcluster.steps import StepCounter

# TensorFlow and JAX take SIGTERM like this, behind Python's back.
NATIVE_SIGTERM = """
import ctypes, signal
libc = ctypes.CDLL(None)
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.signal(signal.SIGTERM, ctypes.cast(libc.getpid, ctypes.c_void_p).value)
"""

LOOP = """
import sys, time, tfcluster
ctx = tfcluster.context()
step = 0
try:
    while True:
        step += 1
        time.sleep(0.01)
        ctx.report(step=step)
except SystemExit as e:
    print("left after", step, "code", e.code, flush=True)
    raise
"""


def until(agent, op: str) -> dict:
    """The agent's next message of this kind."""
    while (message := agent.read())["op"] != op:
        pass
    return message


def position(agent) -> dict:
    """What the program answers when it is asked for its step, once it has counted one."""
    while True:
        agent.write(op="ask_step", round=7)
        answer = until(agent, "step")
        if answer.get("counter"):
            return answer


def act_at(agent, counter: str, step: int) -> None:
    """Names a step, and confirms it."""
    agent.write(op="act_at_step", round=9, counter=counter, step=step)
    answer = until(agent, "step")
    assert answer["round"] == 9 and not answer["passed"] and answer["step"] < step
    agent.write(op="act_at_step", round=9, counter=counter, step=step, confirmed=True)


def test_counter_of_steps() -> None:
    counter = StepCounter()
    acted: list[str] = []
    assert counter.position() == {}
    for step in (10, 20, 30):
        counter.step_ended(step)
    found = counter.position()
    assert (found["counter"], found["step"], found["stride"]) == ("ctx", 30, 10) and found["report_seconds"] > 0
    assert not counter.act_at("ctx", 30, lambda: acted.append("30"))
    assert counter.act_at("ctx", 45, lambda: acted.append("45"))
    counter.confirm("ctx", 44)  # another
    counter.confirm("ctx", 45)
    counter.step_ended(40)
    assert acted == []
    counter.step_ended(50)  # the first that ends at or behind the agreed one
    counter.step_ended(60)
    assert acted == ["45"]
    assert counter.act_at("ctx", 65, lambda: acted.append("65"))
    counter.confirm("ctx", 65)
    counter.forget()
    counter.step_ended(70)
    assert acted == ["45"]


def test_counter_while_keras_trains() -> None:
    counter = StepCounter()
    acted: list[str] = []
    counter.step_ended(1000)
    with counter.fitting():
        assert counter.position() == {}  # its own steps do not count now
        counter.next_batch()  # none has ended
        assert counter.position()["step"] == 0
        assert counter.act_at("batches", 2, lambda: acted.append("batches 2"))
        counter.confirm("batches", 2)
        counter.step_ended(2000)
        counter.next_batch()
        assert acted == []
        with counter.fitting():  # validation
            counter.next_batch()
        assert acted == ["batches 2"]
    counter.step_ended(3000)
    assert counter.position()["counter"] == "ctx"


def test_leaves_at_the_agreed_step(tmp_path: Path) -> None:
    process, agent = start(tmp_path, LOOP)
    answer = position(agent)
    assert answer["round"] == 7 and answer["stride"] == 1
    agreed = answer["step"] + 100
    act_at(agent, "ctx", agreed)
    until(agent, "stopping")
    ran = finish(process, agent)
    assert (ran.code, ran.stdout) == (143, f"left after {agreed} code 143\n")


def test_says_that_the_step_is_passed(tmp_path: Path) -> None:
    process, agent = start(tmp_path, LOOP)
    answer = position(agent)
    agent.write(op="act_at_step", round=8, counter="ctx", step=answer["step"])
    passed = until(agent, "step")
    assert passed["passed"] and passed["round"] == 8 and passed["step"] >= answer["step"]
    act_at(agent, "ctx", passed["step"] + 50)
    ran = finish(process, agent)
    assert ran.stdout == f"left after {passed['step'] + 50} code 143\n"


@pytest.mark.parametrize("native", ["", NATIVE_SIGTERM], ids=["python", "native"])
@pytest.mark.parametrize("waits", ["time.sleep(600)", "threading.Event().wait()", "while True: pass"])
def test_sigterm_and_stop_reach_the_program_once(tmp_path: Path, native: str, waits: str) -> None:
    process, agent = start(
        tmp_path,
        native
        + f"""
import threading, time
try:
    print("in", flush=True)
    {waits}
except SystemExit as e:
    time.sleep(1)  # a second SystemExit would come now
    print("saved", e.code, flush=True)
    raise
""",
    )
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGTERM)
    agent.write(op="stop")
    until(agent, "stopping")
    ran = finish(process, agent)
    assert (ran.code, ran.stdout) == (143, "saved 143\n"), ran.stderr


def test_a_second_sigterm_does_not_end_what_saves(tmp_path: Path) -> None:
    process, agent = start(
        tmp_path,
        """
import time
try:
    print("in", flush=True)
    time.sleep(600)
except SystemExit:
    print("saving", flush=True)
    time.sleep(0.3)
    print("saved", flush=True)
    raise
""",
    )
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "saving\n"
    process.send_signal(signal.SIGTERM)
    agent.write(op="stop")
    ran = finish(process, agent)
    assert (ran.code, ran.stdout) == (143, "saved\n")


@pytest.mark.parametrize("when", ["agreed", "stop"])
@pytest.mark.parametrize("native", ["", NATIVE_SIGTERM], ids=["python", "native"])
def test_the_programs_own_handler_is_called(tmp_path: Path, native: str, when: str) -> None:
    """Once, and the program then goes on until it ends by itself."""
    process, agent = start(
        tmp_path,
        """
import signal, time, tfcluster
calls = []
signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
"""
        + native
        + """
ctx = tfcluster.context()
after = 0
for step in range(1, 100_000):
    time.sleep(0.005)
    ctx.report(step=step)
    after += bool(calls)
    if after > 100:
        break
print(calls, "saved", flush=True)
raise SystemExit(5)
""",
    )
    step = position(agent)["step"]
    if when == "agreed":
        act_at(agent, "ctx", step + 20)
    else:
        process.send_signal(signal.SIGTERM)
        agent.write(op="stop")
        until(agent, "stopping")
    ran = finish(process, agent)
    assert (ran.code, ran.stdout) == (5, "[15] saved\n"), ran.stderr


def test_a_program_in_native_code_says_nothing(tmp_path: Path) -> None:
    """The driver need not wait for a program that does not answer."""
    process, agent = start(
        tmp_path,
        NATIVE_SIGTERM
        + "mutex = ctypes.create_string_buffer(64)\nlibc.pthread_mutex_lock(mutex)\n"
        + "import threading\nthreading.Timer(0.5, print, ['in'], {'flush': True}).start()\n"
        + "libc.pthread_mutex_lock(mutex)\n",
    )
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGTERM)
    agent.write(op="stop")
    agent.write(op="ask_step", round=1)
    assert until(agent, "step") == {"op": "step", "round": 1}  # its thread answers, the program does not
    process.kill()
    ran = finish(process, agent)
    assert ran.code == -signal.SIGKILL and not [m for m in ran.messages if m["op"] == "stopping"]


def test_a_report_of_another_thread(tmp_path: Path) -> None:
    """SystemExit belongs in the main thread, whoever counts the steps."""
    process, agent = start(
        tmp_path,
        """
import threading, time, tfcluster
ctx = tfcluster.context()
def count():
    for step in range(1, 100_000):
        time.sleep(0.005)
        ctx.report(step=step)
threading.Thread(target=count, daemon=True).start()
try:
    time.sleep(600)
except SystemExit:
    print(threading.current_thread().name, "saved", flush=True)
    raise
""",
    )
    act_at(agent, "ctx", position(agent)["step"] + 20)
    ran = finish(process, agent)
    assert (ran.code, ran.stdout) == (143, "MainThread saved\n"), ran.stderr


def test_waits_for_the_others_agreement(tmp_path: Path) -> None:
    """At the named step, until it is confirmed or a later one is named."""
    process, agent = start(tmp_path, LOOP)
    first = position(agent)["step"] + 5
    agent.write(op="act_at_step", round=1, counter="ctx", step=first)
    assert not until(agent, "step")["passed"]
    while position(agent)["step"] < first:
        pass
    assert position(agent)["step"] == first
    agent.write(op="act_at_step", round=2, counter="ctx", step=first + 5)  # another had passed it
    assert not until(agent, "step")["passed"]
    agent.write(op="act_at_step", round=2, counter="ctx", step=first + 5, confirmed=True)
    ran = finish(process, agent)
    assert ran.stdout == f"left after {first + 5} code 143\n"


def test_does_not_wait_for_ever(tmp_path: Path) -> None:
    """A driver that names a step and dies holds nobody up."""
    process, agent = start(tmp_path, LOOP)
    named = position(agent)["step"] + 5
    agent.write(op="act_at_step", round=1, counter="ctx", step=named)
    assert not until(agent, "step")["passed"]
    gave_up = until(agent, "step")  # the driver must not count on it any more
    assert gave_up["passed"] and gave_up["round"] == 1 and gave_up["step"] == named
    while position(agent)["step"] < named + 5:
        pass
    process.send_signal(signal.SIGTERM)
    assert finish(process, agent).code == 143


def test_children_can_be_ended_while_the_program_saves(tmp_path: Path) -> None:
    """They do not inherit that a stop has come: Pool and Process.terminate() send SIGTERM."""
    process, agent = start(
        tmp_path,
        """
import multiprocessing, time
fork = multiprocessing.get_context("fork")
runs = fork.Event()
def work():
    runs.set()
    time.sleep(600)
try:
    print("in", flush=True)
    time.sleep(600)
except SystemExit:
    child = fork.Process(target=work)
    child.start()
    runs.wait()
    child.terminate()
    child.join()
    print("saved, child", child.exitcode, flush=True)
    raise
""",
    )
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGTERM)
    agent.write(op="stop")
    ran = finish(process, agent)
    assert (ran.code, ran.stdout) == (143, f"saved, child {-signal.SIGTERM}\n")


@pytest.mark.parametrize("handler", ["SIG_DFL", "SIG_IGN"])
def test_a_program_without_a_handler(tmp_path: Path, handler: str) -> None:
    """The default ends it at the agreed step. One that ignores SIGTERM does not say that it leaves."""
    process, agent = start(tmp_path, f"import signal\nsignal.signal(signal.SIGTERM, signal.{handler})\n" + LOOP)
    step = position(agent)["step"] + 20
    act_at(agent, "ctx", step)
    if handler == "SIG_IGN":
        while position(agent)["step"] < step + 5:
            pass
        process.kill()
    ran = finish(process, agent)
    assert ran.code == -(signal.SIGTERM if handler == "SIG_DFL" else signal.SIGKILL)
    assert not [m for m in ran.messages if m["op"] == "stopping"]


def test_counters_of_many_threads() -> None:
    """A step's end and the word to act at it are never missed by each other."""
    for _ in range(200):
        counter = StepCounter()
        acted = threading.Event()
        going = threading.Thread(target=lambda c=counter: [c.step_ended(n) for n in range(1, 400)])
        going.start()
        step = min(counter.position().get("step", 0) + 5, 399)
        armed = counter.act_at("ctx", step, acted.set)
        counter.confirm("ctx", step)
        going.join()
        assert armed == acted.is_set()


def test_keras_counts_batches_of_every_fit(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    process, agent = start(
        tmp_path,
        """
import keras, numpy as np
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((8, 4), "float32")
seen = 0
class Count(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        global seen
        seen += 1
    on_test_batch_begin = on_train_batch_begin
try:
    while True:
        model.fit(x, x[:, :1], validation_data=(x, x[:, :1]), epochs=5, batch_size=2, verbose=0, callbacks=[Count()])
except SystemExit as e:
    print("batches", seen - 1, "code", e.code, flush=True)
    raise
""",
        options={"callback": True},
    )
    agreed = position(agent)["step"] + 100
    act_at(agent, "batches", agreed)
    ran = finish(process, agent)
    assert ran.code == 143, ran.stderr
    assert re.fullmatch(rf"batches {agreed} code 143\n", ran.stdout), ran.stdout
