"""Files of TFRecords: each record is as it was, or the file and the offset of what is wrong are named."""

from __future__ import annotations

import gzip
import io
import os
import pathlib
import pickle
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tfcluster import tfrecord

_SEED = int(os.environ.get("TFCLUSTER_SEED", "34"))
RECORDS = [b"", b"a", bytes(range(256)) * 5, b"x" * 70, os.urandom(3000)]


def written(records: list[bytes]) -> bytes:
    """The file of records."""
    file = io.BytesIO()
    assert tfrecord.write_records(file, records) == len(records)
    return file.getvalue()


def read(data: bytes, name: str = "f") -> list[bytes]:
    """The records of a file."""
    return list(tfrecord.read_records(io.BytesIO(data), name))


class Trickle(io.RawIOBase):
    """A file that cannot seek and gives a few bytes at a time, as a socket does."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(min(size, 5))


def test_checksum() -> None:
    """Vectors of RFC 3720, B.4, and all lengths around those at which another way begins."""
    assert tfrecord.crc32c(b"123456789") == 0xE3069283
    assert tfrecord.crc32c(bytes(32)) == 0x8A9136AA
    assert tfrecord.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert tfrecord.crc32c(bytes(range(32))) == 0x46DD794E
    rng = random.Random(_SEED)
    for size in [*range(60), 1023, 1024, 1025, 1024 + 48, 1024 + 49, 5000, (1 << 20) + 1000]:
        data = rng.randbytes(size)
        crc = 0xFFFFFFFF
        for value in data:
            crc = tfrecord._TABLE[(crc ^ value) & 0xFF] ^ (crc >> 8)
        assert tfrecord.crc32c(data) == crc ^ 0xFFFFFFFF, size
        assert tfrecord.crc32c(memoryview(bytearray(data))) == crc ^ 0xFFFFFFFF, size


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zlib.compress, lambda data: zlib.compress(data, 0)])
@pytest.mark.parametrize("opened", [io.BytesIO, Trickle])
def test_round_trip(packed: Callable[[bytes], bytes], opened: Callable[[bytes], Any]) -> None:
    for records in ([], [b""], RECORDS, [b"y" * 3_000_000], [b"z"] * 5000):
        assert list(tfrecord.read_records(opened(packed(written(records))))) == records


def test_gzip_in_parts() -> None:
    """Compressed files that were appended to each other, as cat does."""
    assert read(gzip.compress(written([b"one"])) + gzip.compress(written([b"two"]))) == [b"one", b"two"]


def test_plain_file_that_begins_as_a_compressed_one() -> None:
    """The length of the first record has the first bytes of GZIP, or of ZLIB."""
    for first in (b"\x1f\x8b\x08", b"\x78\x9c"):
        record = bytes(int.from_bytes(first, "little"))
        assert read(written([record])) == [record]


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        (lambda data: data[:-1], "f, offset 17: the file ends within a record of 3 bytes"),
        (lambda data: data[:30], "f, offset 17: the file ends within a record of 3 bytes"),
        (lambda data: data[:22], "f, offset 17: the file ends 5 bytes into the 12 bytes before a record"),
        (lambda data: data[:-5] + b"X" + data[-4:], "f, offset 17: the checksum of a record of 3 bytes is wrong"),
        (lambda data: data[:17] + b"\x04" + data[18:], "f, offset 17: the checksum of a record's length is wrong"),
        (lambda data: b"a text file that has no records", "f, offset 0: the checksum of a record's length is wrong"),
        (lambda data: gzip.compress(data)[:-9], "f, offset "),
        (lambda data: gzip.compress(data)[:10] + b"\xff" * 20, "(uncompressed): the compressed file is damaged"),
        (lambda data: gzip.compress(data[:-1]), "f, offset 17 (uncompressed): the file ends within a record"),
        (lambda data: gzip.compress(data) + b"more", "(uncompressed): the compressed file is damaged"),
    ],
)
def test_damage(spoilt: Callable[[bytes], bytes], says: str) -> None:
    with pytest.raises(tfrecord.TFRecordError) as raised:
        read(spoilt(written([b"a", b"bcd"])))
    assert says in str(raised.value)


def test_a_length_that_nobody_can_read() -> None:
    """A length with a right checksum: no memory is taken for it."""
    length = struct.pack("<Q", 1 << 62)
    head = length + struct.pack("<I", tfrecord._masked(length))
    with pytest.raises(tfrecord.TFRecordError, match="ends within a record of 4611686018427387904 bytes"):
        read(head + b"data")


def test_the_name_of_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(written([b"abc"])[:-2])
    with path.open("rb") as file, pytest.raises(tfrecord.TFRecordError, match="cut, offset 0"):
        list(tfrecord.read_records(file))


def test_damage_at_random() -> None:
    """5,000 damaged files: what is read before the error are the first records of the file."""
    rng = random.Random(_SEED)
    for case in range(5000):
        records = [rng.randbytes(rng.choice([0, 1, 5, 60, 300])) for _ in range(rng.randrange(1, 5))]
        packed = rng.choice([bytes, bytes, gzip.compress, zlib.compress])
        data = bytearray(packed(written(records)))
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        else:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        got, failed = [], False
        try:
            for record in tfrecord.read_records(io.BytesIO(bytes(data)), "f"):
                got.append(record)
        except tfrecord.TFRecordError as e:
            assert str(e).startswith("f, offset "), case
            failed = True
        assert got == records[: len(got)], case
        # All are left where compression has bits without a meaning; a file that is cut between records has fewer.
        assert failed or len(got) < len(records) or packed is not bytes, case


def test_tables_are_not_pickled() -> None:
    """Spark pickles the module by value: tables that were made would be sent to each task."""
    tfrecord.crc32c(bytes(5000))
    assert tfrecord._made
    assert pickle.loads(pickle.dumps(tfrecord._made)) == {}


def test_tensorflow(tmp_path: pathlib.Path) -> None:
    """TensorFlow reads what is written here, and the other way round."""
    tf = pytest.importorskip("tensorflow", reason="missing: tensorflow")
    for kind, packed in (("", bytes), ("GZIP", gzip.compress), ("ZLIB", zlib.compress)):
        ours, theirs = tmp_path / f"ours{kind}", tmp_path / f"theirs{kind}"
        ours.write_bytes(packed(written(RECORDS)))
        assert [r.numpy() for r in tf.data.TFRecordDataset(str(ours), kind)] == RECORDS
        with tf.io.TFRecordWriter(str(theirs), kind) as writer:
            for record in RECORDS:
                writer.write(record)
        with theirs.open("rb") as file:
            assert list(tfrecord.read_records(file)) == RECORDS
