"""Files of TFRecords, read and written without TensorFlow.

A record is framed by its length and two checksums (masked CRC-32C, little endian):

    uint64 length, uint32 checksum of these 8 bytes, the data, uint32 checksum of the data

The reader checks both checksums of every record. It takes any binary file object, also one that cannot seek, as
of a pipe or an object store, and files that are compressed as a whole by GZIP or ZLIB, which it recognizes by
their content. The functions use NumPy only; Spark pickles this module by value for its executors.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np

_HEAD = "<QI"  # of struct, whose compiled formats cannot be pickled
_SUM = "<I"
_PIECE = 1 << 20  # bytes of one read
_SHORT = 48  # bytes, up to which a loop is faster than NumPy
_BLOCK = 1024  # bytes that NumPy sums up at once; its table has 1 KiB for each


class TFRecordError(ValueError):
    """A file of TFRecords that is cut off or damaged; the message has the file and the offset."""


def read_records(file: BinaryIO, name: str = "") -> Iterator[bytes]:
    """Yields the records of a file object, from where it stands to its end.

    name stands in errors; without one it is file.name. Raises TFRecordError at the first byte that is missing or
    wrong: what was yielded before is right. Offsets of compressed files count uncompressed bytes. The file object
    stays open.
    """
    source = _Source(file, name or str(getattr(file, "name", "a file object")))
    while True:
        at = source.offset
        head = source.read(12)
        if not head:
            return
        if len(head) < 12:
            raise source.error(at, f"the file ends {len(head)} bytes into the 12 bytes before a record")
        length, checksum = struct.unpack(_HEAD, head)
        if checksum != _masked(head[:8]):
            raise source.error(at, "the checksum of a record's length is wrong" + (_NO_RECORDS if not at else ""))
        data = source.read(length)
        end = source.read(4) if len(data) == length else b""
        if len(end) < 4:
            raise source.error(at, f"the file ends within a record of {length} bytes")
        if struct.unpack(_SUM, end)[0] != _masked(data):
            raise source.error(at, f"the checksum of a record of {length} bytes is wrong")
        yield data


def framed(record: bytes | bytearray | memoryview) -> bytes:
    """Returns a record as it stands in a file."""
    if isinstance(record, memoryview):
        record = record.cast("B")  # its length is then that in bytes
    length = len(record).to_bytes(8, "little")
    return b"".join((length, struct.pack(_SUM, _masked(length)), record, struct.pack(_SUM, _masked(record))))


def write_records(file: BinaryIO, records: Iterable[bytes | bytearray | memoryview]) -> int:
    """Writes records to a file object, which stays open, and returns their number.

    For a compressed file give a gzip.GzipFile.
    """
    number = 0
    for record in records:
        file.write(framed(record))
        number += 1
    return number


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Returns the CRC-32C (Castagnoli) of data."""
    crc = 0xFFFFFFFF
    if len(data) > _SHORT:
        whole = len(data) - len(data) % _BLOCK
        values = np.frombuffer(data, np.uint8)
        for start in range(0, whole, _BLOCK * _BLOCK):  # so that the indexes of a large record take little memory
            blocks = values[start : min(whole, start + _BLOCK * _BLOCK)].reshape(-1, _BLOCK)
            for part in np.bitwise_xor.reduce(_places(_BLOCK)[_PLACES + blocks], axis=1).tolist():
                crc = _advanced(crc) ^ part
        rest = len(data) - whole
        if rest > _SHORT:
            # The register's four bytes are added to the first four of the data: the sum is linear.
            last = values[whole:].copy()
            last[:4] ^= np.frombuffer(struct.pack(_SUM, crc), np.uint8)
            index = _PLACES[_BLOCK - rest :] + last
            return int(np.bitwise_xor.reduce(_places(_BLOCK)[index])) ^ 0xFFFFFFFF
        data = memoryview(data)[whole:]
    for value in bytes(data):
        crc = _TABLE[(crc ^ value) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes | bytearray | memoryview) -> int:
    """Returns the checksum of data as files have it: a CRC of data that holds CRCs would be weak."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _byte_table() -> list[int]:
    """Returns the CRC-32C of each byte, without the inversions."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _byte_table()
_PLACES = np.arange(_BLOCK, dtype=np.intp) * 256


class _Made(dict[int, Any]):
    """Tables that are made at their first use, and are not pickled with this module."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, ())


_made: dict[int, Any] = _Made()


def _places(block: int) -> Any:
    """Returns, for each place of a block and each value there, what the byte adds to the sum of the block."""
    table = _made.get(block)
    if table is None:
        base = np.array(_TABLE, np.uint32)
        rows = [base]
        for _ in range(block - 1):  # one zero byte more after the value
            rows.append(base[rows[-1] & 0xFF] ^ (rows[-1] >> 8))
        table = _made[block] = np.concatenate(rows[::-1])
    return table


def _advanced(crc: int) -> int:
    """Returns the register after a block of zero bytes."""
    tables = _made.get(-_BLOCK)
    if tables is None:
        places = _places(_BLOCK)  # a register's bytes act as the first four bytes of the block
        tables = _made[-_BLOCK] = [places[at * 256 : at * 256 + 256].tolist() for at in range(4)]
    first, second, third, fourth = tables
    return int(first[crc & 0xFF] ^ second[crc >> 8 & 0xFF] ^ third[crc >> 16 & 0xFF] ^ fourth[crc >> 24])


_NO_RECORDS = (
    ": this is no file of TFRecords, or its first bytes are damaged. The folder may have other files, too: "
    "name those of TFRecords by a pattern, as in folder/part-*"
)


class _Source:
    """The uncompressed bytes of a file object."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.offset = 0
        self._file = file
        self._name = name
        self._ready, self._at = b"", 0  # bytes that were read from the file or uncompressed, and how many were taken
        self._unpacked: Iterator[bytes] | None = None
        first = self._take(12)
        self._at = 0
        if not (len(first) == 12 and struct.unpack(_HEAD, first)[1] == _masked(first[:8])) and _packed(first):
            self._unpacked, self._ready = self._unpack(self._ready), b""

    def read(self, size: int) -> bytes:
        """Returns the next size bytes, or fewer at the end of the file."""
        data = self._take(size)
        self.offset += len(data)
        return data

    def error(self, offset: int, what: str) -> TFRecordError:
        """Returns the error for what is wrong at an offset."""
        unpacked = " (uncompressed)" if self._unpacked else ""
        return TFRecordError(f"{self._name}, offset {offset}{unpacked}: {what}")

    def _take(self, size: int) -> bytes:
        parts, missing = [], size
        while missing:
            if self._at == len(self._ready):
                more = next(self._unpacked, b"") if self._unpacked else self._file.read(_PIECE)
                if not more:
                    break
                # A short first piece is completed, so that the first bytes can be looked at again.
                self._ready, self._at = (self._ready + more, self._at) if not self.offset else (more, 0)
            part = self._ready[self._at : self._at + missing]
            self._at += len(part)
            missing -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unpack(self, first: bytes) -> Iterator[bytes]:
        """Yields the uncompressed pieces of the file, of which first has been read."""
        packed, stream = first, zlib.decompressobj(47)
        while True:
            if stream.eof:  # a GZIP file may have several parts
                packed = stream.unused_data
                packed = packed or self._file.read(_PIECE)
                if not packed:
                    return
                stream = zlib.decompressobj(47)
            elif not packed:
                packed = self._file.read(_PIECE)
                if not packed:
                    raise self.error(self.offset, "the compressed file is cut off")
            try:
                data = stream.decompress(packed, _PIECE)
            except zlib.error as e:
                raise self.error(self.offset, f"the compressed file is damaged: {e}") from e
            packed = stream.unconsumed_tail
            if data:
                yield data


def _packed(first: bytes) -> bool:
    """Reports whether a file with these first bytes is compressed by GZIP or ZLIB."""
    if len(first) < 2:
        return False
    return first[:2] == b"\x1f\x8b" or (first[0] & 0x8F == 0x08 and (first[0] << 8 | first[1]) % 31 == 0)
