"""A Keras program for test_keras_patch: trains under MultiWorkerMirrored if TF_CONFIG is set.

python mwms_program.py OUT SCENARIO…   writes what happened to OUT as JSON
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

from tfcluster import keras_patch

keras_patch.install()

import keras
import numpy as np
import tensorflow as tf

GLOBAL_BATCH = 32


def main() -> None:
    out, scenarios = sys.argv[1], sys.argv[2:]
    many = "TF_CONFIG" in os.environ
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if many else tf.distribute.get_strategy()
    said = {name: globals()[name](strategy) for name in scenarios}
    with open(out, "w") as f:
        json.dump(said, f)


def data(n: int = 256) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    x = random.normal(size=(n, 12)).astype("float32")
    y = (x @ random.normal(size=(12,)) > 0).astype("int32") + (x[:, 0] > 1).astype("int32")
    return x, y, random.uniform(0.2, 2.0, size=n).astype("float32")


def model(strategy, optimizer=None, **compile_options) -> keras.Model:
    keras.utils.set_random_seed(3)
    with strategy.scope():
        built = keras.Sequential(
            [
                keras.layers.Input((12,)),
                keras.layers.Dense(16, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-3)),
                keras.layers.Dense(3),
            ]
        )
        built.compile(
            optimizer=optimizer or keras.optimizers.SGD(0.1, momentum=0.9),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            weighted_metrics=[],
            **compile_options,
        )
    return built


def dataset(*arrays, policy=tf.data.experimental.AutoShardPolicy.DATA) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return tf.data.Dataset.from_tensor_slices(arrays).batch(GLOBAL_BATCH).with_options(options)


def told(built: keras.Model, history=None, **more) -> dict:
    logs = {k: [float(x) for x in v] for k, v in history.history.items()} if history else {}
    weights = [w.astype("float64").ravel().tolist() for w in built.get_weights()]
    return {"weights": weights, "logs": logs, **more}


def fit_dataset(strategy) -> dict:
    x, y, _ = data()
    built = model(strategy)
    history = built.fit(dataset(x, y), validation_data=dataset(x[:64], y[:64]), epochs=3, verbose=0)
    return told(
        built,
        history,
        evaluate=[float(v) for v in built.evaluate(dataset(x, y), verbose=0)],
        predict=np.asarray(built.predict(dataset(x), verbose=0)).sum(axis=0).tolist(),
    )


def fit_arrays(strategy) -> dict:
    x, y, _ = data()
    built = model(strategy)
    history = built.fit(
        x, y, batch_size=GLOBAL_BATCH, epochs=3, shuffle=False, verbose=0, validation_data=(x[:64], y[:64])
    )
    predicted = built.predict(x, batch_size=GLOBAL_BATCH, verbose=0)
    return told(built, history, predict=[float(v) for v in predicted[5]], rows=len(predicted))


def sample_weights(strategy) -> dict:
    x, y, w = data()
    built = model(strategy)
    history = built.fit(dataset(x, y, w), epochs=3, verbose=0)
    return told(built, history)


def shard_off(strategy) -> dict:
    x, y, _ = data()
    built = model(strategy)
    off = tf.data.experimental.AutoShardPolicy.OFF
    return told(built, built.fit(dataset(x, y, policy=off), epochs=3, verbose=0))


def partial_batch(strategy) -> dict:
    x, y, _ = data(256 + 10)
    built = model(strategy)
    return told(built, built.fit(dataset(x, y), epochs=2, verbose=0))


def lone_sample(strategy) -> dict:
    x, y, _ = data(256 + 1)
    built = model(strategy)
    return told(built, built.fit(dataset(x, y), epochs=2, verbose=0))


def steps_per_execution(strategy) -> dict:
    x, y, _ = data()
    built = model(strategy, steps_per_execution=4)
    return told(built, built.fit(dataset(x, y), epochs=2, verbose=0))


def several_outputs(strategy) -> dict:
    x, y, _ = data()
    keras.utils.set_random_seed(3)
    with strategy.scope():
        entry = keras.Input((12,))
        hidden = keras.layers.Dense(8, activation="relu")(entry)
        built = keras.Model(
            {"x": entry},
            {"a": keras.layers.Dense(3, name="a")(hidden), "b": keras.layers.Dense(1, name="b")(hidden)},
        )
        built.compile(
            optimizer=keras.optimizers.SGD(0.05),
            loss={"a": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "b": "mse"},
            loss_weights={"a": 1.0, "b": 0.3},
        )
    history = built.fit(dataset({"x": x}, {"a": y, "b": x[:, :1]}), epochs=2, verbose=0)
    return told(built, history)


def backup(strategy) -> dict:
    folder = os.environ["BACKUP"]
    x, y, _ = data()
    built = model(strategy)

    class Break(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2 and "BREAK" in os.environ:
                raise SystemExit(9)

    seen = []
    callbacks = [
        keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False),
        keras.callbacks.ModelCheckpoint(folder + "/best-{epoch}.keras"),
        keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(epoch)),
        Break(),
    ]
    history = built.fit(dataset(x, y), epochs=4, verbose=0, callbacks=callbacks)
    return told(built, history, epochs=seen)


def batch_norm(strategy) -> dict:
    x, y, _ = data()
    keras.utils.set_random_seed(3)
    with strategy.scope():
        built = keras.Sequential(
            [
                keras.layers.Input((12,)),
                keras.layers.Dense(16),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(3),
            ]
        )
        built.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return told(built, built.fit(dataset(x, y), epochs=2, verbose=0))


if __name__ == "__main__":
    main()
