"""Callbacks that are added to those of a call of fit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def added(callbacks: Any, list_type: type, model: Any, first: Sequence[Any], last: Sequence[Any]) -> Iterator[Any]:
    """Yield the callbacks given to fit with some before and some behind them.

    list_type is the class CallbackList of this Keras: such a list is changed in place, because it knows its model, and
    is as before in the end.
    """
    if not isinstance(callbacks, list_type):
        if callbacks is None:
            callbacks = []
        yield [*first, *(callbacks if isinstance(callbacks, list | tuple) else [callbacks]), *last]
        return
    for callback in (*first, *last):
        callback.set_model(model)
        callback.set_params(callbacks.params)  # type: ignore[attr-defined]
    theirs = callbacks.callbacks  # type: ignore[attr-defined]
    theirs[:] = [*first, *theirs, *last]
    try:
        yield callbacks
    finally:
        ours = {id(callback) for callback in (*first, *last)}
        theirs[:] = [callback for callback in theirs if id(callback) not in ours]
