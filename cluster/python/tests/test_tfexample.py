"""tf.train.Example without TensorFlow: what is decoded is what TensorFlow decodes, or an error says what is wrong."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import numpy as np
import pytest

from tfcluster import tfexample
from tfcluster.tfexample import BYTES, FLOAT, INT64, ExampleError, Feature

_SEED = int(os.environ.get("TFCLUSTER_SEED", "34"))
_EDGES = [0, 1, -1, 127, 128, 300, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)]


def case(rng: random.Random) -> dict[str, Feature]:
    """An Example at random."""
    example = {}
    for _ in range(rng.randrange(5)):
        size = rng.choice([0, 1, 2, 12, 13, 200])
        values: dict[str, Any] = {
            BYTES: [rng.randbytes(rng.choice([0, 1, 5, 200])) for _ in range(min(size, 20))],
            FLOAT: np.array([rng.gauss(0, 1e3) for _ in range(size)], np.float32),
            INT64: np.array([rng.choice([*_EDGES, rng.getrandbits(62)]) for _ in range(size)], np.int64),
            "": [],
        }
        kind = rng.choice(list(values))
        example[rng.choice(["a", "b", "", "é𝄞", "x" * 200])] = Feature(kind, values[kind])
    return example


def same(one: dict[str, Feature], other: dict[str, Feature]) -> bool:
    """Whether Examples are equal bit for bit."""
    return one.keys() == other.keys() and all(
        one[name].kind == other[name].kind
        and (
            list(one[name].values) == list(other[name].values)
            if one[name].kind in (BYTES, "")
            else one[name].values.tobytes() == other[name].values.tobytes()
        )
        for name in one
    )


def theirs(message: Any) -> dict[str, Feature]:
    """A tf.train.Example of TensorFlow as Features."""
    example = {}
    for name, feature in message.features.feature.items():
        kind = (feature.WhichOneof("kind") or "").removesuffix("_list")
        values = list(getattr(feature, f"{kind}_list").value) if kind else []
        types = {FLOAT: np.float32, INT64: np.int64}
        example[name] = Feature(kind, np.array(values, types[kind]) if kind in types else values)
    return example


def test_round_trip() -> None:
    rng = random.Random(_SEED)
    for number in range(1000):
        example = case(rng)
        assert same(tfexample.decode(tfexample.encode(example)), example), number


def test_tensorflow_decodes_the_same() -> None:
    tf = pytest.importorskip("tensorflow", reason="missing: tensorflow")
    rng = random.Random(_SEED)
    for number in range(500):
        example = case(rng)
        message = tf.train.Example.FromString(tfexample.encode(example))
        assert same(theirs(message), example), number
        assert same(tfexample.decode(message.SerializeToString()), example), number


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes, cut off or changed at some places."""
    spoilt = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(spoilt) + 1)
        way = rng.random()
        if way < 0.3:
            del spoilt[at:]
        elif way < 0.8 and at < len(spoilt):
            spoilt[at] = rng.randrange(256)
        else:
            spoilt[at:at] = rng.randbytes(rng.randrange(1, 4))
    return bytes(spoilt)


def test_damage_at_random() -> None:
    """20,000 damaged Examples: decoded as TensorFlow decodes them, or refused."""
    try:
        import tensorflow as tf
    except ImportError:
        tf = None  # then nothing but ExampleError is looked for
    rng = random.Random(_SEED)
    small = {"a": Feature(FLOAT, [1, 2]), "b": Feature(INT64, [1, -1, 300]), "c": Feature(BYTES, [b"q", b""])}
    refused = 0
    for number in range(20000):
        data = damaged(tfexample.encode(small if number % 2 else case(rng)), rng)
        try:
            got = tfexample.decode(data)
        except ExampleError as e:
            assert "no tf.train.Example: byte " in str(e)
            refused += 1
            continue
        if tf is not None:
            want = theirs(tf.train.Example.FromString(data))
            equal = {name: feature for name, feature in got.items() if feature.kind != FLOAT}
            assert same(equal, {name: f for name, f in want.items() if f.kind != FLOAT}), data
            for name in got.keys() - equal.keys():  # the bits of a NaN change in Python's floats
                assert np.array_equal(got[name].values, want[name].values, equal_nan=True), data
    assert 1000 < refused < 20000


def field(key: int, value: bytes) -> bytes:
    """A field with a length."""
    return bytes([key, len(value)]) + value


def of(feature: bytes, name: bytes = b"n") -> bytes:
    """An Example with one feature."""
    return field(10, field(10, field(10, name) + field(18, feature)))


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (of(field(26, b"\x08\x01\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")), [1, -1]),  # not packed
        (of(field(26, b"\x08\x01" + field(10, b"\x02\x03") + b"\x08\x04")), [1, 2, 3, 4]),  # and both
        (of(field(18, b"\x0d\x00\x00\x80\x3f" + field(10, b"\x00\x00\x00\x40"))), [1.0, 2.0]),
        (of(field(26, b"\x08\x01") + field(26, b"\x08\x02")), [1, 2]),  # in parts
        (of(field(26, b"\x08\x01") + field(10, field(10, b"x"))), [b"x"]),  # the last kind counts
        (of(field(26, b"\x08\x01")) + of(field(26, b"\x08\x02")), [2]),  # as does the last of a name
        (of(field(26, b"\x10\x07\x08\x01") + b"\x20\x05") + b"\x19" + bytes(8) + b"\x25" + bytes(4), [1]),  # unknown
    ],
)
def test_other_encoders(data: bytes, values: list[Any]) -> None:
    assert list(tfexample.decode(data)["n"].values) == values


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x0a\x05ab", "byte 0: field 1 of Example has 5 bytes, of which 2 are there"),
        (b"\x0a", "byte 1: a varint of Example is cut off"),
        (b"\x0a" + b"\xff" * 11, "a varint of Example has more than ten bytes"),
        (b"\x00\x01", "field 0 of Example"),
        (b"\x0b", "wire type 3 of field 1 of Example"),
        (of(field(18, field(10, b"abc"))), "3 bytes of packed floats"),
        (of(field(26, field(10, b"\x80"))), "a varint of Int64List is cut off"),
        (of(field(26, field(10, b"\x80" * 30))), "a varint of Int64List is cut off"),
        (of(field(26, field(10, b"\x80" * 12 + b"\x01" * 2))), "a varint of Int64List has more than ten bytes"),
        (of(b"", b"\xff"), r"the name of a feature is no UTF-8: b'\xff'"),
        (field(10, field(10, b"\x18\x01")), "field 3 in an entry of Features"),
    ],
)
def test_what_is_wrong(data: bytes, says: str) -> None:
    with pytest.raises(ExampleError) as raised:
        tfexample.decode(data)
    assert says in str(raised.value)


def test_values_that_no_feature_has() -> None:
    for kind, values in (("double", [1.0]), (FLOAT, ["a"]), (INT64, [1 << 63])):
        with pytest.raises((ValueError, OverflowError)):
            tfexample.encode({"x": Feature(kind, values)})
    assert tfexample.decode(tfexample.encode({"x": Feature(FLOAT, [1e300])}))["x"].values[0] == np.inf


def test_a_large_example_takes_a_moment() -> None:
    """A million values: seconds at most, where a loop over them in Python takes many."""
    example = {"i": Feature(INT64, np.arange(1_000_000)), "f": Feature(FLOAT, np.ones(1_000_000, np.float32))}
    began = time.process_time()
    assert same(tfexample.decode(tfexample.encode(example)), example)
    assert time.process_time() - began < 10
