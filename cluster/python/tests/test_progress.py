"""The injected callback, with Keras itself."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import json, os, socket, threading
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
from tfcluster import progress
from tfcluster.channel import Channel
ours, theirs = socket.socketpair()
channel = Channel(theirs)
progress.install(channel)
import keras, numpy as np
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
x = np.zeros((64, 2), "float32"); y = np.zeros((64, 1), "float32")
%s
channel.flush()
theirs.shutdown(socket.SHUT_WR)
for line in ours.makefile():
    print(line.strip())
"""


def messages(body: str) -> list[dict]:
    """Return what a program sends, in order."""
    import json

    pytest.importorskip("keras")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % textwrap.dedent(body)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def reports(body: str) -> list[dict]:
    """Return the reports of progress that a program sends."""
    return [message for message in messages(body) if message["op"] == "report"]


@pytest.mark.parametrize(
    "callbacks",
    [
        "",
        "callbacks=[keras.callbacks.History()]",
        "callbacks=keras.callbacks.CallbackList([], add_history=True, model=model, epochs=3, steps=8)",
    ],
)
def test_fit_is_reported(callbacks: str) -> None:
    got = reports(f"model.fit(x, y, batch_size=8, epochs=3, verbose=0, validation_data=(x, y), {callbacks})")
    last = got[-1]
    assert (last["step"], last["total_steps"], last["epoch"], last["total_epochs"]) == (24, 24, 3, 3)
    assert last["source"] == "keras" and {"loss", "mae", "val_loss", "val_mae"} <= set(last["metrics"])


def test_unknown_length_and_positional_arguments() -> None:
    got = reports(
        """
        def batches():
            for _ in range(5):
                yield x[:8], y[:8]
        model.fit(batches(), None, None, 1, 0, [keras.callbacks.History()])
        """
    )
    assert got[-1]["step"] == 5 and got[-1]["epoch"] == 1


def test_a_wrong_call_is_kerass_error() -> None:
    reports(
        """
        try:
            model.fit(x, y, no_such_thing=1)
        except TypeError as e:
            assert "no_such_thing" in str(e), e
        else:
            raise SystemExit("no error")
        """
    )


def test_phases_of_fit() -> None:
    """Each phase of fit is marked, and the last step is known though reports are rare."""
    got = messages(
        """
        import tfcluster.activity as activity
        seen, mark = [], activity.Activity.mark

        def seen_mark(self):
            mark(self)
            seen.append(self.phase)

        activity.Activity.mark = seen_mark
        class Save(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                self.model.save_weights("x.weights.h5")
        import tempfile; os.chdir(tempfile.mkdtemp())
        model.fit(x, y, batch_size=32, epochs=2, verbose=0, validation_data=(x, y), callbacks=[Save()])
        print(json.dumps({"op": "seen", "phases": seen}))
        """
    )
    epoch = [*["step"] * 2, *["validation"] * 3, "step", "between_epochs", "checkpoint", "between_epochs"]
    assert next(m["phases"] for m in got if m["op"] == "seen") == ["first_step", *epoch, *epoch, "after_training"]
    last = [m for m in got if m["op"] == "activity"][-1]
    assert (last["counter"], last["step"], last["phase"]) == ("batches", 4, "after_training")
    assert 0 < last["own_seconds"] < last["seconds"]
