"""Moving a program of TensorFlowOnSpark's: one of the form of its mnist_spark.py needs five changed lines."""

from __future__ import annotations

import difflib
import pathlib
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT
from standalone import NEEDS_SPARK

pytestmark = [*NEEDS_SPARK, pytest.mark.engines]

# What Keras 3 asks for is in both: a whole number of steps, names of weights that end in .weights.h5, model.save.
THEIRS = """
def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf
    from tensorflowonspark import TFNode

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def compiled():
        layers = tf.keras.layers
        model = tf.keras.Sequential([
            layers.Input((28, 28, 1)), layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
            layers.Dense(32, activation="relu"), layers.Dense(10, activation="softmax"),
        ])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    feed = TFNode.DataFeed(ctx.mgr, False)

    def records():
        while not feed.should_stop():
            for image, label in feed.next_batch(1):
                yield np.reshape(np.array(image, "float32") / 255, (28, 28, 1)), np.array([label], "float32")

    shapes = tf.TensorShape([28, 28, 1]), tf.TensorShape([1])
    data = tf.data.Dataset.from_generator(records, (tf.float32, tf.float32), shapes).batch(args.batch_size)
    name = args.model_dir + "/weights-{epoch:04d}.weights.h5"
    keep = [tf.keras.callbacks.ModelCheckpoint(name, save_weights_only=True)]
    with strategy.scope():
        model = compiled()
    # All workers have to be done before any of them runs out of records.
    steps = int(args.records / args.batch_size / ctx.num_workers * 0.9)
    model.fit(data, epochs=args.epochs, steps_per_epoch=steps, callbacks=keep, verbose=0)
    if ctx.job_name == "chief":
        model.save(args.model_dir + "/model.keras")
    feed.terminate()


if __name__ == "__main__":
    import argparse
    from pyspark import SparkConf, SparkContext
    from tensorflowonspark import TFCluster

    sc = SparkContext(conf=SparkConf().setAppName("mnist").setMaster("local[2]"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--records", type=int)
    parser.add_argument("--images_labels")
    parser.add_argument("--model_dir")
    args = parser.parse_args()

    def parse(line):
        values = [int(value) for value in line.split(",")]
        return values[1:], values[0]

    images_labels = sc.textFile(args.images_labels, 4).map(parse)
    cluster = TFCluster.run(sc, main_fun, args, args.cluster_size, num_ps=0, input_mode=TFCluster.InputMode.SPARK, master_node="chief")
    cluster.train(images_labels, args.epochs)
    cluster.shutdown()
"""  # noqa: E501
CHANGES = {
    "    from tensorflowonspark import TFNode\n": "",
    "TFNode.DataFeed(ctx.mgr, False)": "ctx.get_data_feed(False)",
    "    from tensorflowonspark import TFCluster\n": "    import tfcluster\n",
    next(line for line in THEIRS.splitlines() if "TFCluster.run" in line): (
        '    cluster = tfcluster.reserve(backend="spark", session=sc, chief=True, workers=args.cluster_size - 1)\n'
        "    cluster.start(main_fun, args)"
    ),
}


def test_mnist(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The program runs with the changes, and they are at most five lines."""
    ours = THEIRS
    for line, other in CHANGES.items():
        assert ours.count(line) == 1
        ours = ours.replace(line, other)
    changed = 0
    for kind, *at in difflib.SequenceMatcher(None, THEIRS.splitlines(), ours.splitlines()).get_opcodes():
        changed += 0 if kind == "equal" else max(at[1] - at[0], at[3] - at[2])
    assert changed <= 5
    (tmp_path / "program.py").write_text(ours)
    shutil.copy(ROOT / "notebooks" / "mnist.py", tmp_path)
    write = "import mnist, numpy as np\n(x, y), _ = mnist.load()\nx = (x[:2048].reshape(2048, 784) * 255).astype(int)\n"
    write += "np.savetxt('digits.csv', np.column_stack([y[:2048], x]), '%d', ',')"
    subprocess.run([sys.executable, "-c", write], cwd=tmp_path, check=True)
    words = ["--records", "2048", "--images_labels", str(tmp_path / "digits.csv"), "--model_dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "program.py", *words],
        env={**env, "PYTHONPATH": str(ROOT / "cluster" / "python")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (tmp_path / "weights-0002.weights.h5").exists() and (tmp_path / "model.keras").exists()
