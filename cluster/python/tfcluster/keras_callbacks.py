"""Callbacks that are added to the program's callbacks for a call of fit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def added(callbacks: Any, list_type: type, model: Any, first: Sequence[Any], last: Sequence[Any]) -> Iterator[Any]:
    """Yields the callbacks given to fit, with some before and some after them.

    list_type is the class CallbackList of this Keras. Such a list is changed in place, because it knows its
    model, and restored at the end.
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
