"""Arrays and tensors of NumPy, TensorFlow, PyTorch and JAX as arrays, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def taken(x: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Returns a value as an array in C's order, and a function that converts a result to the value's kind."""
    import numpy as np

    kind = type(x).__module__.partition(".")[0]
    if kind == "torch":
        torch = sys.modules["torch"]
        if x.dtype == torch.bfloat16:  # NumPy has no such type
            bits = x.detach().cpu().contiguous().view(torch.int16).numpy()
            return bits.view(
                _bfloat16()
            ), lambda a: torch.from_numpy(a.view(np.int16)).view(torch.bfloat16).to(x.device)
        return np.asarray(x.detach().cpu().numpy(), order="C"), lambda a: torch.from_numpy(a).to(x.device)
    if kind == "tensorflow" or hasattr(x, "numpy") and "tensorflow" in sys.modules:
        tf = sys.modules["tensorflow"]
        return np.asarray(x.numpy(), order="C"), lambda a: tf.convert_to_tensor(a)
    if kind in ("jax", "jaxlib"):
        jax = sys.modules["jax"]
        return np.asarray(x, order="C"), lambda a: jax.numpy.asarray(a)
    array = np.asarray(x, order="C")
    if not array.dtype.isnative:  # agents add in native byte order
        array = array.astype(array.dtype.newbyteorder("="))
    return array, lambda a: a if a.ndim else a[()]


def _bfloat16() -> Any:
    """Returns NumPy's type bfloat16, from a package that JAX and TensorFlow bring, too."""
    import ml_dtypes

    return ml_dtypes.bfloat16
