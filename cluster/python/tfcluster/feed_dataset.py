"""A feed as a tf.data.Dataset.

Batches are handed to TensorFlow as they come, and cut to the program's size in C++: one call of Python for
thousands of records. Each batch is copied once, for TensorFlow alone, because TensorFlow writes into memory
that it was lent. from_generator wraps an array without a copy, in a buffer that no kernel may write to
(OwnsMemory is false, py_func.cc). A batch that is a slice of it (rebatch_dataset_op.cc) has a buffer without
that mark (SubBuffer, tensor.cc), and an element-wise kernel that is the last to use it puts its result there.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfcluster import feed_columns, hooks

if TYPE_CHECKING:
    from tfcluster.feed_columns import Columns
    from tfcluster.feed_reader import EpochOver

DataFeed = Any  # tfcluster.feed.DataFeed, which imports this module


def make(feed: DataFeed, batch_size: int) -> Any:
    """Returns the dataset of feed.as_dataset."""
    import tensorflow as tf

    if not tf.executing_eagerly():
        raise RuntimeError(
            "feed.as_dataset was called inside a tf.function, or by coordinator.create_per_worker_dataset, where the "
            "feed cannot be read: call it outside, and with ParameterServerStrategy pass batches to "
            "coordinator.schedule on the chief"
        )
    hooks.when_imported("keras.src.trainers.epoch_iterator", _patch_once)
    plan = feed.plan
    pad = plan.get("uneven") == "pad" and plan.get("mode") == "train"
    if plan.get("mode") == "inference" and feed.should_stop():
        return tf.data.Dataset.range(0)  # this worker has no record, and nothing to answer
    sample = feed_columns.cut(_first(feed), 0, 1)
    signature = tf.nest.map_structure(
        lambda v: _spec(tf, v), _element(feed, feed_columns.cut(sample, 0, 1), 1 if pad else None)
    )
    if plan.get("mode") == "inference":  # every batch is to be answered: none is left out, padded or kept back
        return tf.data.Dataset.from_generator(lambda: _answered(feed, batch_size), output_signature=signature)
    steps = _Steps(feed, batch_size)
    dataset = tf.data.Dataset.from_generator(lambda: steps.elements(pad), output_signature=signature)
    if size := int(plan.get("shuffle") or 0):
        dataset = dataset.unbatch().shuffle(size, seed=feed._seed).batch(batch_size, _drops(feed))
    else:
        dataset = dataset.rebatch(batch_size, _drops(feed))
    tail = tf.data.Dataset.from_generator(lambda: steps.tail(pad), output_signature=signature)
    options = tf.data.Options()
    # Each worker has its own records already: sharding would drop a part of them.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.concatenate(tail).with_options(options)
    dataset._tfcluster_steps = steps
    return dataset


def _drops(feed: DataFeed) -> bool:
    return bool(feed.plan.get("drop_remainder"))


def _first(feed: DataFeed) -> dict[str, Any]:
    """Waits for the first records and returns them, for their types and shapes. They remain to be read."""
    while not feed._rest:
        if not feed._more() or feed._epoch_over is not None:
            raise RuntimeError(
                "the feed has no record, and feed.as_dataset takes the types from the first one: feed data that has "
                "records, or read it with feed.as_iterable"
            )
    return feed._rest[0]


def _element(feed: DataFeed, columns: dict[str, Any], weight: float | None) -> Any:
    """Returns records as an element for the program; with a weight it is (features, label, weight)."""
    import numpy as np

    element = feed._paired(feed_columns.copied(columns))
    if weight is None:
        return element
    weights = np.full(feed_columns.rows(columns), weight, dtype=np.float32)
    return (*element, weights) if isinstance(element, tuple) else (element, np.zeros(len(weights)), weights)


def _spec(tf: Any, values: Any) -> Any:
    dtype = tf.string if values.dtype == object else tf.as_dtype(values.dtype)
    return tf.TensorSpec(shape=(None, *values.shape[1:]), dtype=dtype)


_PEEKED = 8  # batches that an iteration may have read, so that its records can still be taken back


def _patch_once(module: ModuleType) -> None:
    if not hasattr(module.EpochIterator.reset, "__wrapped__"):
        patch_reset(module)
        patch_warning(module)


def patch_reset(module: ModuleType) -> None:
    """Makes Keras' fit and evaluate begin with the first record.

    Under a strategy they take a batch to build the model, and then reset the iterator. The evaluation of an
    epoch resets an iterator of its own: this does not make training read its records again.
    """
    reset = module.EpochIterator.reset

    @functools.wraps(reset)
    def reset_feeds(self: Any) -> None:
        reset(self)
        for steps in _read_by(self):
            steps.rewind()

    module.EpochIterator.reset = reset_feeds


def patch_warning(module: ModuleType) -> None:
    """Makes Keras warn that the data of a feed ran out only if the program gave steps_per_epoch.

    Keras warns at the end of every dataset with a number of batches that it does not know in advance, and an
    epoch of a feed ends where its source does.
    """
    warn = getattr(module.EpochIterator, "_interrupted_warning", None)
    if warn is None:
        return

    @functools.wraps(warn)
    def interrupted_warning(self: Any) -> None:
        if self.steps_per_epoch is None and any(steps.over() for steps in _read_by(self)):
            return
        warn(self)

    module.EpochIterator._interrupted_warning = interrupted_warning


def _read_by(iterator: Any) -> Iterator[_Steps]:
    """Yields the feeds that an iterator of Keras reads, also through other datasets and a strategy."""
    datasets = [getattr(iterator.data_adapter, "_dataset", None)]
    while datasets:
        dataset = datasets.pop()
        if (steps := getattr(dataset, "_tfcluster_steps", None)) is not None:
            yield steps
        elif dataset is not None:
            datasets.append(getattr(dataset, "_original_dataset", None))  # of a DistributedDataset
            datasets.extend(getattr(dataset, "_inputs", list)())


def _answered(feed: DataFeed, batch_size: int) -> Iterator[Any]:
    """Yields the batches of inference, each of which the program must answer."""
    while (columns := feed._gather(batch_size, across=False)) is not None:
        yield _element(feed, columns, None)
    feed._epoch_over = None


class _Steps:
    """The records of a feed, one epoch at a time.

    elements yields the records as they come. In an evaluation tail yields a last batch with one record more,
    if other workers have no record for another batch. TensorFlow calls both from threads of its own.
    """

    def __init__(self, feed: DataFeed, batch_size: int) -> None:
        self._feed = feed
        self._size = batch_size
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._iteration = 0
        self._given: list[Columns] | None = None  # records of this iteration; None: too many to be taken back
        self._ended: EpochOver | None = None  # the end of the epoch, once this iteration has reached it
        self._tail: Columns | None = None

    def rewind(self) -> None:
        """Takes back the records of an iteration that has read only the first ones."""
        with self._lock:
            self._take_back(ended=True)

    def over(self) -> bool:
        """Reports whether the iteration has reached the end of its epoch, or the program reads no more."""
        with self._lock:
            return self._ended is not None or self._feed.over

    def _take_back(self, *, ended: bool) -> None:
        """Takes back the last iteration's records, with ended also after its end. Called with _lock held."""
        if self._given is not None and (ended or self._ended is None):
            feed = self._feed
            feed._steps -= sum(map(feed_columns.rows, self._given))
            if self._ended is not None:
                feed._epoch_over = self._ended
            feed._rest[:0] = self._given
        self._iteration += 1  # its generator ends
        self._given, self._ended, self._tail = [], None, None

    def elements(self, pad: bool) -> Iterator[Any]:
        """Yields the records of the next epoch."""
        feed = self._feed
        with self._lock:
            self._take_back(ended=False)
            mine = self._iteration
            feed._use("as_dataset", even=True, batch=self._size)
            while not feed._rest and feed._epoch_over is None:
                if not feed._more():
                    raise RuntimeError(feed._no_more())
        last: Columns | None = None
        keep = self._size + 1 if feed.plan.get("mode") == "evaluate" else 0
        held: Columns | None = None  # evaluation keeps back as many records as the tail may need
        while True:
            with self._lock:
                columns = self._next(mine)
            if columns is None:
                break
            if keep:
                columns = feed_columns.concatenated([held, columns] if held is not None else [columns])
                ready = max(0, feed_columns.rows(columns) - keep)
                held = feed_columns.cut(columns, ready, feed_columns.rows(columns))
                columns = feed_columns.cut(columns, 0, ready)
            if feed_columns.rows(columns):
                last = columns
                yield _element(feed, columns, 1 if pad else None)
        with self._lock:
            over = self._ended if mine == self._iteration else None
            if held is not None and over is not None and over.rows > over.least > 0 and over.least % self._size == 0:
                self._tail, held = held, None
        if held is not None:
            yield _element(feed, held, 1 if pad else None)
        if pad and last is not None and over is not None:
            whole = -(over.rows + over.repeat) % self._size if feed.plan.get("drop_remainder") else 0
            row = feed_columns.cut(last, feed_columns.rows(last) - 1, feed_columns.rows(last))
            for _ in range(over.repeat + whole):
                yield _element(feed, row, 0)

    def _next(self, mine: int) -> Columns | None:
        """Returns the next records of the epoch; None at its end, and if another iteration has begun."""
        feed = self._feed
        if mine != self._iteration or self._ended is not None:
            return None
        while not feed._rest and feed._epoch_over is None:
            if not feed._more():
                return None
        if not feed._rest:
            self._ended, feed._epoch_over = feed._epoch_over, None
            return None
        columns = self._limited(feed._rest.pop(0))
        if self._given is not None:
            if sum(map(feed_columns.rows, self._given)) > _PEEKED * self._size:
                self._given = None
            else:
                self._given.append(columns)
        return columns if feed_columns.rows(columns) else None

    def _limited(self, columns: Columns) -> Columns:
        """Returns the records up to the last of --steps; after it the program reads no more."""
        feed = self._feed
        limit = int(feed.plan.get("steps") or 0) * self._size
        if limit and feed._steps + feed_columns.rows(columns) >= limit:
            behind = limit - feed._steps
            feed._rest.insert(0, feed_columns.cut(columns, behind, feed_columns.rows(columns)))  # not read
            columns = feed_columns.cut(columns, 0, behind)
            feed.terminate()
        feed._steps += feed_columns.rows(columns)
        return columns

    def tail(self, pad: bool) -> Iterator[Any]:
        """Yields the batch after those of elements, if there is one."""
        with self._lock:
            tail, self._tail = self._tail, None
        if tail is not None:
            yield _element(self._feed, tail, 1 if pad else None)
