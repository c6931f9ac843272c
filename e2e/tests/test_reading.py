"""Reading what programs write: Keras' default progress bar in a cell, tracebacks of the notebook's code."""

from __future__ import annotations

import pathlib
import re

import pytest
from conftest import Notebook

pytestmark = pytest.mark.engines

FIT = """
def main_fun(args, ctx):
    import keras, numpy as np, tensorflow as tf, time
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.05))
    x = np.ones((32 * 20, 4), "float32")
    model.fit(x, x[:, :1], epochs=2, batch_size=32, callbacks=[slow])
"""
LAST = re.compile(r"\[worker:[01]\] 20/20 ━+ \d+s \d+ms/step - loss: [\d.e+-]+$")


def overwritten(text: str) -> list[str]:
    """Return the lines that JupyterLab keeps: a carriage return makes what follows overwrite the line, character by
    character, those of control sequences counted."""
    lines = []
    for line in text.split("\n"):
        kept = ""
        for part in line.split("\r"):
            kept = part + kept[len(part) :]
        lines.append(kept)
    return lines


def without_colours(line: str) -> str:
    """Return what a reader sees of the line."""
    return re.sub(r"\x1b\[[\d;]*m", "", line).rstrip()


def coalesced(text: str) -> list[str]:
    """Return the lines that nbconvert keeps (nbconvert/preprocessors/coalescestreams.py)."""
    while "\b" in text:
        text = re.sub(r"[^\n]\b", "", text)
    return re.sub(r".*\r(?=[^\n])", "", text).split("\n")


@pytest.fixture
def notebook(shared: Notebook) -> Notebook:
    """One kernel for all tests."""
    return shared


def test_keras_bar(notebook: Notebook) -> None:
    """An epoch leaves one line a task and no fragment of a bar, also in `logs`; start names the folder of the lines."""
    notebook.ok("%tfcluster reserve --workers 2")
    notebook.ok(FIT)
    started = notebook.ok("%tfcluster start main_fun")
    cell = notebook.ok("%tfcluster wait")
    stdout = "".join(text for name, text in cell.streams if name == "stdout")
    assert stdout.count("\r") > 10, "no bar was seen to move"
    assert "dataset.cc" in stdout and "dataset.cc" not in cell.stderr, "TensorFlow's harmless lines are shown in red"
    logs = notebook.ok("%tfcluster logs")
    for reader in overwritten, coalesced:
        for text in stdout, logs.text:
            lines = [without_colours(line) for line in reader(text)]
            bars = [line for line in lines if "━" in line]
            assert "\b" not in text and "\x1b" not in "".join(lines)
            assert len(bars) == 4 and all(LAST.match(bar) for bar in bars), lines
    assert "\r" not in logs.text
    folder = pathlib.Path(re.search(r"^logs: (.+)$", started.all, re.MULTILINE).group(1))
    for task in "worker-0", "worker-1":
        kept = "".join(path.read_text() for path in folder.glob(f"{task}/*.log"))
        assert "Epoch 2/2" in kept, f"{folder} holds no lines of {task}"
    notebook.ok("%tfcluster shutdown")


def test_tracebacks(notebook: Notebook) -> None:
    """A traceback names the cell that a line is in, by its number in the notebook."""
    notebook.ok("%tfcluster reserve --workers 2 --no-zygote")
    helper = notebook.ok("def helper(n):\n    return 1 // n").count
    main = notebook.ok("def main_fun(args, ctx):\n    ctx.barrier('all')\n    return helper(0)").count
    failed = notebook.fails("%tfcluster start --wait main_fun")
    for text in failed.error, notebook.ok("%tfcluster logs").text:
        assert f"Cell In[{main}], line 3, in main_fun" in text, text
        assert f"Cell In[{helper}], line 2, in helper" in text
        assert "return 1 // n" in text and "ipykernel" not in text
    failed = notebook.fails("%%tfcluster start --wait\nimport tfcluster\n1 / 0\n")
    assert f"Cell In[{failed.count}], line 3, in <module>" in failed.error, failed.all
    notebook.ok("%tfcluster shutdown")
