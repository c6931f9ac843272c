"""tf.train.Example, encoded and decoded without TensorFlow and without its protocol buffers.

An Example is a dict of Features by name. On the wire it is

    message Example   { Features features = 1; }
    message Features  { map<string, Feature> feature = 1; }
    message Feature   { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
    message BytesList { repeated bytes value = 1; }      // FloatList, Int64List: packed, or not

The decoder reads what every encoder of protocol buffers writes: fields in any order, in parts, and unknown ones,
which it skips. Where decoders of protocol buffers differ, it raises ExampleError. Spark pickles this module by
value for its executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

BYTES, FLOAT, INT64 = "bytes", "float", "int64"
_NUMBERS = {BYTES: 1, FLOAT: 2, INT64: 3}  # of the fields of Feature
_KINDS = {number: kind for kind, number in _NUMBERS.items()}
_FEW = 12  # values, up to which a loop is faster than NumPy


class ExampleError(ValueError):
    """Bytes that are no tf.train.Example; the message has what is wrong and where."""


class Feature(NamedTuple):
    """The values of a feature: bytes in a list, or numbers in an array of float32 or int64; kind is "" without any."""

    kind: str
    values: Any


_NONE = Feature("", [])


def encode(example: Mapping[str, Feature]) -> bytes:
    """Returns a tf.train.Example; equal Examples are equal bytes, because the features are sorted by name.

    Raises ValueError for a kind or a value that no feature has.
    """
    return encoded({name: feature_bytes(*example[name]) for name in example})


def encoded(features: Mapping[str, bytes]) -> bytes:
    """Returns a tf.train.Example of features that feature_bytes returned."""
    entries = []
    for name in sorted(features):
        entry = _field(1, name.encode()) + _field(2, features[name])
        entries.append(_field(1, entry))
    return _field(1, b"".join(entries))


def feature_bytes(kind: str, values: Sequence[Any] | Any) -> bytes:
    """Returns the message Feature: of bytes, or of an array or list of numbers."""
    if kind == BYTES:
        return _field(1, b"".join([_field(1, value) for value in values]))
    if kind == FLOAT:
        with np.errstate(over="ignore"):  # a double that is too large becomes infinite, as in protocol buffers
            packed = np.asarray(values, "<f4").tobytes()
    elif kind == INT64:
        numbers = np.asarray(values)
        if numbers.size and numbers.dtype.kind not in "biu":
            raise ValueError(f"a feature of integers cannot hold values of the type {numbers.dtype}")
        if numbers.size and numbers.max() > np.iinfo(np.int64).max:
            raise ValueError(f"a feature of integers cannot hold {numbers.max()}: it has 64 bits with a sign")
        packed = _packed_varints(numbers.astype(np.int64))
    elif not kind:
        return b""
    else:
        raise ValueError(f"a feature has no values of the kind {kind!r}: there are {', '.join(_NUMBERS)}")
    return _field(_NUMBERS[kind], _field(1, packed) if packed else b"")


def decode(data: bytes | bytearray | memoryview) -> dict[str, Feature]:
    """Returns the features of a tf.train.Example by name. Raises ExampleError if the bytes are none.

    Of a name that is there twice the last feature counts, as in protocol buffers.
    """
    data = bytes(data)
    example: dict[str, Feature] = {}
    for key, start, stop in _fields(data, 0, len(data), "Example"):
        if key == _FIRST:
            for inner, first, last in _fields(data, start, stop, "Features"):
                if inner == _FIRST:
                    name, feature = _entry(data, first, last)
                    example[name] = feature
    return example


_FIRST, _SECOND = 1 << 3 | 2, 2 << 3 | 2  # keys of fields 1 and 2 with a length
_ONE_VARINT, _ONE_FLOAT = 1 << 3, 1 << 3 | 5  # keys of a value that is not packed
_KIND_KEYS = {number << 3 | 2: kind for number, kind in _KINDS.items()}
_FIXED = {1: 8, 5: 4}  # bytes of a field by its wire type


def _entry(data: bytes, start: int, stop: int) -> tuple[str, Feature]:
    """Returns a name and its feature."""
    name, kind, lists = "", "", []
    for key, at, end in _fields(data, start, stop, "an entry of Features"):
        if key == _FIRST:
            try:
                name = data[at:end].decode()
            except UnicodeDecodeError as e:
                raise _error(at, f"the name of a feature is no UTF-8: {data[at:end][:40]!r}") from e
        elif key == _SECOND:
            for inner, first, last in _fields(data, at, end, "Feature"):
                found = _KIND_KEYS.get(inner, "")
                if found and found != kind:  # a oneof: the last kind counts
                    kind, lists = found, []
                if found:
                    lists.append((first, last))
        else:  # some decoders skip the field, and some the whole entry
            raise _error(start, f"field {key >> 3} in an entry of Features, which has a name and a Feature only")
    return name, Feature(kind, _READ[kind](data, lists)) if kind else _NONE


def _bytes_values(data: bytes, lists: list[tuple[int, int]]) -> list[bytes]:
    return [
        data[at:end]
        for start, stop in lists
        for key, at, end in _fields(data, start, stop, "BytesList")
        if key == _FIRST
    ]


def _float_values(data: bytes, lists: list[tuple[int, int]]) -> Any:
    packed = []
    for start, stop in lists:
        for key, at, end in _fields(data, start, stop, "FloatList"):
            if key == _FIRST and (end - at) % 4:
                raise _error(at, f"{end - at} bytes of packed floats, which have four bytes each")
            if key in (_FIRST, _ONE_FLOAT):
                packed.append(data[at:end])
    return np.frombuffer(b"".join(packed), "<f4").astype(np.float32, copy=False)


def _int64_values(data: bytes, lists: list[tuple[int, int]]) -> Any:
    values: list[int] = []
    long = []
    for start, stop in lists:
        for key, at, end in _fields(data, start, stop, "Int64List"):
            if key == _ONE_VARINT:
                values.append(at)
            elif key == _FIRST and end - at > _FEW:
                long += [np.array(values, np.uint64), _varints(data, at, end)]
                values = []
            elif key == _FIRST:
                while at < end:
                    value, at = _varint(data, at, end, "Int64List")
                    values.append(value)
    return np.concatenate([*long, np.array(values, np.uint64)]).view(np.int64)


_READ = {BYTES: _bytes_values, FLOAT: _float_values, INT64: _int64_values}


def _fields(data: bytes, start: int, stop: int, message: str) -> Iterator[tuple[int, int, int]]:
    """Yields the fields of a message: the key, and where its value starts and ends; of a varint the value and 0."""
    at = start
    while at < stop:
        began = at
        key = data[at]
        if key < 0x80:
            at += 1
        else:
            key, at = _varint(data, at, stop, message)
        wire = key & 7
        if not 0 < key >> 3 < 1 << 29:
            raise _error(began, f"field {key >> 3} of {message}: there are fields 1 to 536870911")
        if wire == 0:
            value, at = _varint(data, at, stop, message)
            yield key, value, 0
            continue
        if wire == 2:
            length, at = _varint(data, at, stop, message)
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            raise _error(began, f"wire type {wire} of field {key >> 3} of {message}: no tf.train.Example has it")
        if length > stop - at:
            raise _error(began, f"field {key >> 3} of {message} has {length} bytes, of which {stop - at} are there")
        yield key, at, at + length
        at += length


def _varint(data: bytes, at: int, stop: int, message: str) -> tuple[int, int]:
    """Returns a varint and where it ends."""
    value = shift = 0
    for place in range(at, min(stop, at + 10)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place + 1
        shift += 7
    raise _error(at, f"a varint of {message} " + ("is cut off" if stop < at + 10 else "has more than ten bytes"))


def _varints(data: bytes, start: int, stop: int) -> Any:
    """Returns packed varints as an array of uint64."""
    values = np.frombuffer(data, np.uint8, stop - start, start)
    ends = np.flatnonzero(values < 0x80)
    if not len(ends) or ends[-1] != len(values) - 1:
        raise _error(stop, "a varint of Int64List is cut off")
    starts = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - starts + 1
    if sizes.max() > 10:
        raise _error(start, "a varint of Int64List has more than ten bytes")
    shifts = 7 * (np.arange(len(values)) - np.repeat(starts, sizes))
    parts = (values & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
    return np.bitwise_or.reduceat(parts, starts)


def _packed_varints(values: Any) -> bytes:
    """Returns an array of int64 as packed varints."""
    if len(values) <= _FEW:
        return b"".join([_to_varint(value % (1 << 64)) for value in values.tolist()])
    groups = values.view(np.uint64)[:, None] >> _SHIFTS
    there = groups != 0
    there[:, 0] = True
    groups = (groups & 0x7F).astype(np.uint8)
    groups[:, :-1] |= there[:, 1:].astype(np.uint8) << 7  # one more byte follows
    return groups[there].tobytes()


_SHIFTS = np.arange(0, 70, 7, dtype=np.uint64)


def _to_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: bytes) -> bytes:
    """Returns a field with a length."""
    return b"".join((bytes((number << 3 | 2,)), _to_varint(len(value)), value))


def _error(at: int, what: str) -> ExampleError:
    return ExampleError(f"no tf.train.Example: byte {at}: {what}")
