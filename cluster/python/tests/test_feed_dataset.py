"""A feed as a tf.data.Dataset, without a cluster: what its elements are, and how an epoch ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_feed import Fed

from tfcluster import feed_dataset
from tfcluster.feed import DataFeed
from tfcluster.feed_reader import EpochOver

pytest.importorskip("tensorflow", reason="missing: TensorFlow")


def fed(records: int, repeat: int = 0, least: int | None = None, epochs: int = 1, **plan: Any) -> DataFeed:
    """A feed of so many records per epoch in two parts; others have as many as this task with those it repeats."""
    x = np.arange(records, dtype=np.float32)
    parts: list[Any] = []
    for epoch in range(epochs):
        parts += [
            {"x": x[: records // 2], "y": 2 * x[: records // 2]},
            {"x": x[records // 2 :], "y": 2 * x[records // 2 :]},
        ]
        parts.append(EpochOver(epoch, records, repeat, records + repeat, records if least is None else least))
    reader: Any = Fed(parts, **{"mode": "train", "label": "y", "epochs": epochs, **plan})
    return DataFeed(lambda: reader)


@pytest.mark.parametrize(
    ("repeat", "plan", "sizes"),
    [
        (0, {}, [4, 4, 4, 1]),
        (1, {}, [4, 4, 4, 2]),
        (1, {"drop_remainder": True}, [4, 4, 4, 4]),  # padded to whole batches: no record is left out
        (0, {"epochs": 2}, [4, 4, 4, 1]),
    ],
)
def test_padding(repeat: int, plan: dict[str, Any], sizes: list[int]) -> None:
    """--uneven pad: every element has weights; what is repeated has weight 0, so the sums are those of the records."""
    feed = fed(13, repeat, uneven="pad", **plan)
    dataset = feed.as_dataset(4)
    assert [spec.dtype.name for spec in dataset.element_spec] == ["float32"] * 3
    for _ in range(int(plan.get("epochs", 1))):
        read = [[values.numpy() for values in element] for element in dataset]
        assert [len(x) for x, _, _ in read] == sizes
        x, y, weights = (np.concatenate(columns) for columns in zip(*read, strict=True))
        assert sorted(x[weights == 1]) == list(range(13)) and (y == 2 * x).all() and set(weights) <= {0, 1}


def test_padding_without_a_label() -> None:
    """There is no label to give, so it is zeros: Keras takes the third of three for the weights."""
    reader: Any = Fed([{"": np.arange(3.0)}, EpochOver(0, 3, 1, 4, 3)], mode="train", uneven="pad")
    [(x, y, weights)] = DataFeed(lambda: reader).as_dataset(8)
    assert (x.numpy() * weights.numpy()).sum() == 3 and y.numpy().tolist() == [0] * 4 and weights.numpy().sum() == 3


def test_steps() -> None:
    """--steps ends the reading; what the program was handed behind that is said to be unread."""
    feed = fed(13, steps=2)
    assert [len(x) for x, _ in feed.as_dataset(4)] == [4, 4]
    assert feed._reader is not None and feed._reader.over and feed._reader.unread == 5


def test_padding_is_of_training() -> None:
    """evaluate has every record once, and no weights; one record more than others comes with the last batch."""
    feed = fed(9, 0, 8, uneven="pad", mode="evaluate")
    read = [x.numpy() for x, _ in feed.as_dataset(4)]
    assert [len(x) for x in read] == [4, 5] and sorted(np.concatenate(read)) == list(range(9))


def test_each_batch_is_the_programs_own() -> None:
    """What TensorFlow writes into a batch changes no record: those that are held may be given again."""
    x = np.arange(400, dtype=np.float32).reshape(100, 4)
    reader: Any = Fed([{"": x}, EpochOver(0, 100, 0, 100, 100)], mode="train")
    given = next(_elements(DataFeed(lambda: reader)))
    assert not np.shares_memory(given, x) and given.flags.writeable and (given == x).all()


def _elements(feed: DataFeed) -> Any:
    """What the generator of as_dataset gives TensorFlow."""
    feed._use("as_dataset")
    return feed_dataset._Steps(feed, 64).elements(pad=False)


def test_validation_beside_a_feed() -> None:
    """The evaluation behind each epoch of fit leaves the feed where it is: every epoch has its own records."""
    import keras
    import tensorflow as tf

    parts: list[Any] = []
    for epoch in range(3):
        x = np.full((12, 1), float(epoch), np.float32)
        parts += [{"x": x, "y": x[:, 0]}, EpochOver(epoch, 12, 0, 12, 12)]
    reader: Any = Fed(parts, mode="train", label="y", epochs=3)
    feed = DataFeed(lambda: reader)
    seen: list[float] = []

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:
            tf.py_function(lambda y: seen.extend(y.numpy().tolist()), [data[1]], [])
            return super().train_step(data)

    model = Model()
    model.compile("sgd", "mse")
    some = np.zeros((5, 1), np.float32)
    dataset = feed.as_dataset(4).map(lambda x, y: (x, y))
    history = model.fit(dataset, epochs=3, validation_data=(some, some[:, 0]), verbose=0).history
    assert seen == [0.0] * 12 + [1.0] * 12 + [2.0] * 12 and len(history["val_loss"]) == 3
