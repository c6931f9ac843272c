"""The feed of ctx.get_data_feed(): the records of `%tfcluster train DATA`, evaluate or inference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfcluster import feed_columns
from tfcluster.feed_answers import Answers
from tfcluster.feed_columns import Columns
from tfcluster.feed_reader import EpochOver, Reader

_NEXT = "next_batch and next_numpy"  # a way of reading


class DataFeed:
    """The records of one task. Names of TensorFlowOnSpark's DataFeed keep their meaning.

    next_batch(n)   up to n records: fewer at the end of the feed (with train_mode=False of each epoch) and in
                    inference. A record of an array is a row, of a DataFrame a tuple in the order of its
                    columns; with input_mapping a batch is a dict of lists
    next_numpy(n)   up to n records as arrays by column; one array if the source is one
    as_iterable(n)  an iterable of batches in next_numpy's form; each iteration is one epoch
    as_dataset(n)   a tf.data.Dataset; each iteration is one epoch, of equally many batches on every worker

    batch_results(list)  in inference: one result for each record of a batch, in their order
    results(batch)       the same as an array, a dict of arrays by name, or a list of rows

    All of them deliver each record once per epoch over all workers, in memory of the program's own:
    frameworks write into arrays that they were given (PyTorch's from_numpy, TensorFlow's kernels). A run uses
    one way of reading.
    """

    def __init__(
        self,
        connect: Callable[[], Reader],
        *,
        train_mode: bool = True,
        input_mapping: Mapping[str, str] | None = None,
        workers: int = 1,
        seed: int = 0,
        task: str = "",
        began: Callable[[Mapping[str, Any]], None] = lambda plan: None,
    ) -> None:
        self._began = began
        self._connect = connect
        self._train_mode = train_mode
        self._mapping = dict(input_mapping or {})
        self._workers = workers
        self._seed = seed
        self._task = task
        self._answers: Answers | None = None
        self._reader: Reader | None = None
        self._way = ""
        self._rest: list[Columns] = []  # read, and not yet handed out
        self._form: tuple[int, feed_columns.Form] = (0, {})  # of the records of a feed, by its number
        self._epoch_over: EpochOver | None = None  # after _rest
        self._steps = 0

    # ------------------------------------------------------------ what is fed

    @property
    def plan(self) -> Mapping[str, Any]:
        """Returns the plan of `train DATA`, evaluate or inference; waits for the first of them."""
        return self._reading().plan

    @property
    def begun(self) -> bool:
        """Reports whether the program has begun to read."""
        return bool(self._way)

    @property
    def over(self) -> bool:
        """Reports whether no more records come, or the program reads no more."""
        return self._reader is not None and self._reader.over

    @property
    def records(self) -> int:
        """Returns the number of records that this task has read."""
        return 0 if self._reader is None else self._reader.total

    def _reading(self) -> Reader:
        if self._reader is None:
            self._reader = self._connect()
        self._reader.begin()
        return self._reader

    def _use(self, way: str, *, even: bool = False, batch: int = 0) -> Reader:
        """Begins or continues to read; raises RuntimeError if the run uses another way of reading."""
        reader = self._reading()
        if not self._way:
            self._way = way
            if self.plan.get("mode") == "inference":
                self._answers, even = Answers(reader, self._task), False
            reader.read(even=even and self._workers > 1, batch=batch)
            self._began(self.plan)
        elif self._way != way:
            raise RuntimeError(
                f"this feed is read by {self._way} already: it cannot be read by {way}, too; use one of them"
            )
        return reader

    def _more(self) -> bool:
        """Reads the next records, or an epoch's end, after _rest; returns False at the end of the feed."""
        assert self._reader is not None
        found = self._reader.next()
        if isinstance(found, EpochOver):
            self._epoch_over = found
        elif found:
            self._check(found)
            self._epoch_over = None  # these are of the next one
            self._rest.append(self._named(found))
        elif self._reader.short and not self._rest and self._answers is not None:
            self._answers.await_some()
        return found is not None

    def _check(self, columns: Columns) -> None:
        """Raises RuntimeError if a column has another type or shape than before in this feed.

        A producer checks its own partition only.
        """
        assert self._reader is not None
        form = feed_columns.form(columns)
        feed, before = self._form
        if feed == self._reader.feed and form != before:
            name = next(name for name in {**form, **before} if form.get(name) != before.get(name))
            here, earlier = _described(form.get(name)), _described(before.get(name))
            raise RuntimeError(
                f"column {name!r} of DATA is {here} here and {earlier} before: "
                "all records must have one type and shape; cast them, and pad or cut arrays to one length"
            )
        self._form = self._reader.feed, form

    def _named(self, columns: Columns) -> Columns:
        """Returns the columns under the program's names for them, sorted as TensorFlowOnSpark does."""
        if not self._mapping:
            return columns
        return {self._mapping[name]: columns[name] for name in sorted(self._mapping)}

    def _take(self, most: int) -> Columns | None:
        """Takes up to most records of one form from _rest: another train may feed other columns."""
        parts: list[Columns] = []
        count = 0
        form = feed_columns.form(self._rest[0]) if self._rest else {}
        while self._rest and count < most and feed_columns.form(self._rest[0]) == form:
            first = self._rest.pop(0)
            n = min(feed_columns.rows(first), most - count)
            parts.append(feed_columns.cut(first, 0, n))
            count += n
            if n < feed_columns.rows(first):
                self._rest.insert(0, feed_columns.cut(first, n, feed_columns.rows(first)))
        return feed_columns.concatenated(parts) if parts else None

    def _gather(self, most: int, *, across: bool) -> Columns | None:
        """Waits for up to most records, to the end of the epoch or with across of the feed; returns them."""
        while sum(map(feed_columns.rows, self._rest)) < most:
            if self._epoch_over is not None and not across:
                break
            self._epoch_over = None
            if not self._more() or self._rest and self._reader is not None and self._reader.short:
                break
        columns = self._take(most)
        if columns is not None and self._answers is not None:
            self._answers.handed(feed_columns.rows(columns))
        return columns

    def _batch(self, most: int) -> Columns | None:
        """Returns the next records, without train_mode of one epoch alone; None at the end of the feed."""
        while (columns := self._gather(most, across=self._train_mode)) is None and self._epoch_over is not None:
            self._epoch_over = None  # it had no more records
        return columns

    # ------------------------------------------------------- TensorFlowOnSpark

    def should_stop(self) -> bool:
        """Reports whether the feed has no more records; waits until that is known."""
        reader = self._use(self._way or _NEXT)
        while not self._rest and not reader.over:
            self._more()
        return not self._rest

    def next_batch(self, batch_size: int) -> Any:
        """Returns the next records as a list, or with input_mapping as a dict of lists."""
        self._use(_NEXT, batch=batch_size)
        columns = self._counted(self._batch(batch_size))
        if columns is None:
            return {name: [] for name in self._mapping.values()} if self._mapping else []
        if self._mapping:
            return {name: _items(values) for name, values in columns.items()}
        values = [_items(v) for v in columns.values()]
        return values[0] if self._single(columns) else list(zip(*values, strict=True))

    def batch_results(self, results: Sequence[Any]) -> None:
        """Gives the results of a batch in inference, one for each record, in the records' order."""
        self.results(list(results))

    def results(self, batch: Any) -> None:
        """Gives the results, in inference, of the oldest batch without results, or of several whole batches.

        An array, or a list of results, becomes the column `prediction`. A dict of arrays, or a list of dicts,
        becomes a column for each name.
        """
        if self._answers is None:
            raise RuntimeError(
                "feed.results is for inference, after records were read: run the program by %tfcluster "
                "inference, and call "
                f"it where ctx.mode is 'inference' (it is {self.plan.get('mode')!r})"
            )
        self._answers.give(batch)

    def end(self) -> None:
        """Ends the reading; RuntimeError if a record of inference has no result. The runner calls it."""
        if self._answers is not None:
            self._answers.end()
        self.terminate()

    def terminate(self) -> None:
        """Ends the reading: the source stops as soon as no worker reads."""
        unread, self._rest = sum(map(feed_columns.rows, self._rest)), []
        if self._reader is not None:
            self._reader.leave(unread)

    def _single(self, columns: Columns) -> bool:
        """Reports whether the columns are one array without a name: DATA is an array, or an RDD of values."""
        return list(columns) == [""]

    def _counted(self, columns: Columns | None) -> Columns | None:
        """Counts a step; after the last one of --steps it ends the reading."""
        if columns is not None and (steps := int(self.plan.get("steps") or 0)):
            self._steps += 1
            if self._steps == steps:
                self.terminate()
        return columns

    # ------------------------------------------------------------- NumPy, JAX

    def next_numpy(self, batch_size: int) -> Any:
        """Returns the next records as arrays; None at the end of the feed."""
        self._use(_NEXT, batch=batch_size)
        columns = self._counted(self._batch(batch_size))
        return None if columns is None else self._bare(feed_columns.owned(columns))

    def _bare(self, columns: Columns) -> Any:
        return next(iter(columns.values())) if self._single(columns) else columns

    def as_iterable(self, batch_size: int) -> _Epochs:
        """Returns an iterable of batches of arrays; each iteration is one epoch."""
        return _Epochs(self, batch_size)

    def _epoch(self, batch_size: int) -> Iterator[Any]:
        reader = self._use("as_iterable", batch=batch_size)
        while not self._rest and self._epoch_over is None:
            if not self._more():
                raise RuntimeError(self._no_more())
        shuffled = _Shuffle(int(self.plan.get("shuffle") or 0), self._seed)
        while (columns := shuffled.next(lambda n: self._gather(n, across=False), batch_size)) is not None:
            if feed_columns.rows(columns) < batch_size and self.plan.get("drop_remainder"):
                break
            yield self._paired(feed_columns.owned(columns))
            if self._counted(columns) is not None and reader.over:
                return
        self._epoch_over = None

    def _no_more(self) -> str:
        return f"the feed is over: it had {int(self.plan.get('epochs') or 1)} epochs; iterate over it ctx.epochs times"

    def _paired(self, columns: Columns) -> Any:
        """Returns (features, label) if a label was named, otherwise features; one feature has no name."""
        label = self._label or self.plan.get("label") or None  # an array's only column is ""
        named = {name: values for name, values in columns.items() if name != label}
        features = next(iter(named.values())) if len(named) == 1 else named
        return (features, columns[label]) if label else features

    _label: str | None = None

    # ------------------------------------------------------------- TensorFlow

    def as_dataset(self, batch_size: int, label: str | None = None) -> Any:
        """Returns a tf.data.Dataset of batches: (features, label) if a label is named, here or by --label.

        batch_size is one worker's in plain iteration and the global one under a tf.distribute strategy, as in
        TensorFlow. A single feature column is a tensor, several are a dict.
        """
        from tfcluster import feed_dataset

        self._use("as_dataset", even=True, batch=batch_size)
        if label is not None:
            self._label = label
        return feed_dataset.make(self, batch_size)


class _Epochs:
    """The iterable of as_iterable."""

    def __init__(self, feed: DataFeed, batch_size: int) -> None:
        self._feed = feed
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[Any]:
        return self._feed._epoch(self._batch_size)


class _Shuffle:
    """A buffer of size records, from which batches are drawn at random. With size 0 they keep their order."""

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._columns: Columns | None = None
        if size:
            import numpy as np

            self._random = np.random.default_rng(seed)

    def next(self, gather: Callable[[int], Columns | None], count: int) -> Columns | None:
        """Returns the next records, which it takes from gather."""
        if not self._size:
            return gather(count)
        held = feed_columns.rows(self._columns or {})
        if (more := gather(self._size + count - held)) is not None:
            parts = [more] if self._columns is None else [self._columns, more]
            self._columns = feed_columns.concatenated(parts)
        if self._columns is None:
            return None
        order = self._random.permutation(feed_columns.rows(self._columns))
        drawn = {name: values[order[:count]] for name, values in self._columns.items()}
        rest = {name: values[order[count:]] for name, values in self._columns.items()}
        self._columns = rest if feed_columns.rows(rest) else None
        return drawn


def _described(kind: tuple[str, tuple[int, ...]] | None) -> str:
    if kind is None:
        return "missing"
    dtype, shape = kind
    return f"an array of {dtype} of shape {shape}" if shape else dtype


def _items(values: Any) -> Sequence[Any]:
    """Returns the rows of an array as a program expects them: Python's numbers, or arrays of its own."""
    return values.tolist() if values.ndim == 1 else list(values.copy())
