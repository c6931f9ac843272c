"""What Spark's tasks do with files of TFRecords: write and read them, and complete a save.

Spark pickles this module by value: it imports pyarrow, and modules that are pickled with it.
"""

from __future__ import annotations

import contextlib
import io
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from tfcluster import tfexample, tfrecord
from tfcluster.tfos import rows

_ROWS = 1000  # at most, in a record batch of what is read
_BYTES = 4 << 20  # of their Examples, about

Stage = Callable[[Iterable[Any]], Iterator[Any]]  # a function for mapInArrow
SAID = "name string, final string, size bigint, refused string"


class Written(NamedTuple):
    """A task's report: the file it wrote, the name it is to get, its size; or the row that has no place in it."""

    name: str = ""
    final: str = ""
    size: int = 0
    refused: str = ""


def file_system(uri: str) -> tuple[Any, str]:
    """Returns the file system of a qualified path as Spark writes it, "hdfs://host/a b", and the path there.

    Raises OSError if it cannot be reached from here.
    """
    from pyarrow import fs

    scheme, _, rest = uri.partition(":")
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.lstrip("/")
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
    try:
        found, path = fs.FileSystem.from_uri(scheme + ":" + urllib.parse.quote(rest, safe="/:@"))
    except (OSError, ValueError) as e:
        raise OSError(
            f"this executor cannot open {uri}: {e}. hdfs: needs libhdfs and CLASSPATH of `hadoop classpath --glob` in "
            "the executors' environment; a folder that all executors mount (file:) needs nothing"
        ) from e
    return found, path


# -------------------------------------------------------------------- saving


def begin_stage(output: str, aside: str) -> Stage:
    """Returns a stage that makes the folder aside in the folder output, which must be new."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        from pyarrow import fs

        for _ in batches:
            pass
        files, path = file_system(output)
        found = files.get_file_info(path)
        inside = [] if found.type != fs.FileType.Directory else files.get_file_info(fs.FileSelector(path))
        # Spark may try this task again.
        if found.type != fs.FileType.NotFound and [each.base_name for each in inside] != [aside]:
            yield _said(Written(refused=f"{output} exists already: choose another folder, or remove it"))
            return
        files.create_dir(f"{path}/{aside}", recursive=True)
        yield _said(Written())

    return run


def write_stage(output: str, aside: str, columns: Sequence[rows.Column]) -> Stage:
    """Returns a stage that writes a partition to a file in the folder aside; another attempt writes another file."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        from pyarrow import fs
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("this part of tfcluster runs in a task of Spark: this is a fault of tfcluster")
        partition = context.partitionId()
        final = f"part-r-{partition:05d}"
        name = f"{final}-{context.taskAttemptId()}"
        files, path = file_system(output)
        folder = f"{path}/{aside}"
        if files.get_file_info(folder).type != fs.FileType.Directory and files.type_name == "local":
            raise OSError(
                f"{output} is not the same folder on all executors, so the files would be scattered: "
                "choose a folder that all of them mount, or another file system"
            )
        number = size = 0
        with files.open_output_stream(f"{folder}/{name}", buffer_size=1 << 20) as file:
            for batch in batches:
                try:
                    for example in rows.batch_examples(batch, columns, number):
                        framed = tfrecord.framed(example)
                        file.write(framed)
                        size += len(framed)
                except rows.RowError as e:
                    yield _said(Written(refused=f"partition {partition}, {e}"))
                    return
                number += batch.num_rows
        yield _said(Written(name, final, size))

    return run


def commit_stage(output: str, aside: str, written: Sequence[Written]) -> Stage:
    """Returns a stage that gives the written files their names, and then writes _SUCCESS."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        from pyarrow import fs

        for _ in batches:
            pass
        files, path = file_system(output)
        for each in written:
            source, target = f"{path}/{aside}/{each.name}", f"{path}/{each.final}"
            at, there = files.get_file_info([source, target])
            if at.type == fs.FileType.File and at.size == each.size:
                files.move(source, target)
            elif not (there.type == fs.FileType.File and there.size == each.size):  # by an attempt before this one
                raise OSError(
                    f"{output}: the file {each.name} of {each.size} bytes, which a task wrote, is not complete here: "
                    "all executors must see the same folder"
                )
        with files.open_output_stream(f"{path}/_SUCCESS"):
            pass
        with contextlib.suppress(OSError):  # it is complete; readers pass over this folder
            files.delete_dir(f"{path}/{aside}")
        yield _said(Written())

    return run


def undo_stage(output: str, aside: str, names: Sequence[str]) -> Stage:
    """Returns a stage that removes the folder aside, the files with these names, and output if it is then empty."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        from pyarrow import fs

        for _ in batches:
            pass
        files, path = file_system(output)
        for name in ("_SUCCESS", *names):
            with contextlib.suppress(OSError):
                files.delete_file(f"{path}/{name}")
        with contextlib.suppress(OSError):
            files.delete_dir(f"{path}/{aside}")
        with contextlib.suppress(OSError):
            if not files.get_file_info(fs.FileSelector(path)):
                files.delete_dir(path)
        yield _said(Written())

    return run


def _said(written: Written) -> Any:
    import pyarrow as pa

    types = {"name": pa.string(), "final": pa.string(), "size": pa.int64(), "refused": pa.string()}
    given = written._asdict()
    return pa.RecordBatch.from_arrays([pa.array([given[name]], kind) for name, kind in types.items()], list(types))


# -------------------------------------------------------------------- loading


def first_stage() -> Stage:
    """Returns a stage that yields the first record of its files."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for file in _files(batches):
            with file.opened() as opened:
                for record in tfrecord.read_records(opened, file.path):
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([file.path]), pa.array([record], pa.binary())], ["path", "record"]
                    )
                    return

    return run


def read_stage(columns: Sequence[rows.Column], only: bool) -> Stage:
    """Returns a stage that yields the records of files as rows; with only other features are errors."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        of = {column.name: column for column in columns}
        examples: list[Any] = []
        size = 0
        for file in _files(batches):
            with file.opened() as opened:
                for number, record in enumerate(tfrecord.read_records(opened, file.path)):
                    try:
                        examples.append(rows.checked(tfexample.decode(record), of, only))
                    except ValueError as e:
                        raise rows.RowError(f"{file.path}, record {number}: {e}") from None
                    size += len(record)
                    if len(examples) == _ROWS or size >= _BYTES:
                        yield rows.record_batch(examples, columns)
                        examples, size = [], 0
        if examples:
            yield rows.record_batch(examples, columns)

    return run


class _File(NamedTuple):
    """A file that Spark found: with its content, or to be opened by its path."""

    path: str
    content: bytes | None

    def opened(self) -> BinaryIO:
        """Returns the file, opened."""
        if self.content is not None:
            return io.BytesIO(self.content)
        return open("/" + self.path.removeprefix("file:").lstrip("/"), "rb")  # noqa: SIM115 -- the caller closes it


def _files(batches: Iterable[Any]) -> Iterator[_File]:
    """Yields the files of record batches with the columns path and maybe content."""
    for batch in batches:
        for at in range(batch.num_rows):
            content = batch.column(1)[at].as_py() if batch.num_columns > 1 else None
            yield _File(batch.column(0)[at].as_py(), content)
