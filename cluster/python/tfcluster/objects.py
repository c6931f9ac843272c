"""The notebook's objects, for requests of Go."""

from __future__ import annotations

import contextlib
import keyword
import os
import re
import secrets
from collections.abc import Mapping
from typing import Any

from tfcluster import frontend, gate, shipping
from tfcluster.errors import UsageError

_feeds: dict[str, Any] = {}  # feed_thread.Feeding by the number that Go gave it
values: dict[str, Any] = {}  # of inference, by that number, until the call that asked for one has it

_FORMAT = re.compile(r"^(.*?)(?:!([rsa]))?(?::([^:{}]*))?$", re.DOTALL)


class Objects:
    """The answers to calls of Go, with a namespace: the notebook's, with the caller's locals first.

    given has objects that a Python call passed, by the names in its command line. They come before all
    others.
    """

    def __init__(
        self,
        globals_: dict[str, Any],
        locals_: Mapping[str, Any] | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self._globals = globals_
        self._locals = locals_ if locals_ is not None else {}
        self._given = given or {}

    def __call__(self, fn: str, args: Mapping[str, Any]) -> Any:
        method = getattr(self, "do_" + fn, None)
        if method is None:
            raise UsageError(
                f"the notebook's Python has loaded another version of the package tfcluster, which lacks {fn!r}: "
                "restart the kernel; if that does not help, install the same version there"
            )
        return method(**args)

    def _find(self, name: str) -> Any:
        for names in (self._given, self._locals, self._globals):
            if name in names:
                return names[name]
        raise KeyError(name)

    def do_expand(self, names: list[str]) -> dict[str, str | None]:
        """Returns the text of each name; None for unknown names. UsageError for a name without a text."""
        found: dict[str, str | None] = {}
        for name in names:
            try:
                value = self._find(name)
            except KeyError:
                found[name] = None
                continue
            try:
                found[name] = str(value)
            except Exception as e:
                raise UsageError(f"${name}: {type(e).__name__}: {e}") from e
        return found

    def do_eval(self, expr: str) -> str:
        """Returns the text of an expression; {x:.2f} and {x!r} work as in an f-string."""
        # One namespace, because a comprehension or lambda in the expression sees only globals.
        names = {**self._globals, **self._locals}
        try:
            code = compile(expr, "<tfcluster>", "eval")
        except (SyntaxError, ValueError) as e:
            match = _FORMAT.match(expr)
            if not match or not (match[2] or match[3] is not None):
                raise UsageError(f"this is not an expression of Python: {getattr(e, 'msg', e)}") from None
        else:
            return str(eval(code, names))
        value = eval(compile(match[1], "<tfcluster>", "eval"), names)
        if match[2]:
            value = {"r": repr, "s": str, "a": ascii}[match[2]](value)
        return format(value, match[3] or "")

    def do_program(self, name: str, max_bytes: int, big: int, py_files: list[str] | None = None) -> gate.Passed:
        """Returns a pickled function with the modules that it imports."""
        try:
            function = self._find(name)
        except KeyError:
            raise UsageError(
                f"the notebook has no name {name}: run the cell that defines it, or name a script ({name}.py)"
            ) from None
        if not callable(function):
            raise UsageError(f"{name} is not a function but {_a(function)}")
        label = name if name not in self._given else "the program"
        pickled, captured = shipping.pickle_program(function, label, max_bytes, big)
        beside = shipping.script_folder() if frontend.shell() is None else ""
        files = [*(py_files or ()), *shipping.submitted_files()]
        modules = shipping.modules_of_function(function, os.getcwd(), files, beside)
        _bound(name, len(pickled) + len(modules), max_bytes)
        described = {
            "kind": "function",
            "captured": [{"name": n, "bytes": size} for n, size in captured],
            "module": getattr(function, "__module__", "") or "",
            "qualname": getattr(function, "__name__", "") or "",
        }
        return gate.Passed(described, pickle=pickled, modules=modules)

    def do_modules(
        self, max_bytes: int, source: str = "", path: str = "", py_files: list[str] | None = None
    ) -> gate.Passed:
        """Returns the modules that a script or cell imports."""
        modules = shipping.modules_of_source(source, path, os.getcwd(), py_files or ())
        _bound(path or "the cell", len(modules), max_bytes)
        return gate.Passed({}, modules=modules)

    def do_args(self, name: str) -> gate.Passed:
        """Returns a pickled object."""
        try:
            value = self._find(name)
        except KeyError:
            raise UsageError(f"--args: the notebook has no name {name}: run the cell that makes it") from None
        return gate.Passed({}, pickle=shipping.pickle_value(value, name if name not in self._given else "args"))

    def do_names(self) -> list[str]:
        """Returns the names of the notebook's functions, for completion."""
        return sorted(
            name
            for name, value in list(self._globals.items())
            if not name.startswith("_") and callable(value) and not isinstance(value, type)
        )

    def do_environ(self, names: list[str]) -> dict[str, str | None]:
        """Returns variables of the notebook's environment."""
        return {name: os.environ.get(name) for name in names}

    def do_spark_session(self, name: str, asked: bool) -> dict[str, Any]:
        """Describes the notebook's SparkSession of that name, if there is one."""
        try:
            spark = self._find(name)
        except KeyError:
            if asked:
                raise UsageError(
                    f"--session: the notebook has no {name}: make a SparkSession first, or give --master"
                ) from None
            return {"found": False}
        identity = _identity(spark) if _is_session(spark) or _is_context(spark) else ""
        if not _is_session(spark):
            if not asked:
                return {"found": False}
            if not identity:
                raise UsageError(f"--session: {name} is not a SparkSession but {_a(spark)}; name a SparkSession")
            spark = _session_of(spark)
        from tfcluster import spark_session

        unusable, host = "", ""
        with contextlib.suppress(Exception):
            unusable = spark_session.Session(spark).unusable()
        if not unusable:
            with contextlib.suppress(Exception):
                host = str(spark_session.setting(spark, "spark.driver.host", "") or "")
        return {"found": True, "host": host, "unusable": unusable, "identity": identity}

    def do_spark_lend(self, name: str, socket: str) -> bool:
        """Connects the notebook's SparkSession to a cluster's driver."""
        from tfcluster import spark_host

        spark_host.borrow(_session_of(self._find(name)), socket)
        return True

    def do_feed_describe(self, id: str, name: str, plan: dict[str, Any]) -> dict[str, Any]:
        """Describes DATA, which is kept under id until feed_end; raises UsageError if it cannot be fed."""
        from tfcluster import feed_data, feed_notebook, feed_predictions, feed_thread

        try:
            value = self._find(name)
        except KeyError:
            raise UsageError(f"the notebook has no name {name}: run the cell that makes it") from None
        if (into := plan.get("into")) and (not into.isidentifier() or keyword.iskeyword(into)):
            raise UsageError(f"-o {into}: give a name for the variable that gets the result")
        plan["binary"] = feed_notebook.binaries(plan.get("binary") or ())

        def make(again: bool) -> feed_data.Source:
            source = feed_notebook.describe(value, plan)
            return feed_predictions.of(value, source, plan, again) if plan.get("mode") == "inference" else source

        gate.attend(lambda: Objects(self._globals))
        _feeds[id] = feed_thread.Feeding(make)
        source = _feeds[id].source
        return {
            "plan": {**plan, "unnamed": source.unnamed},
            "columns": source.columns,
            "total": source.total,
            "once": source.once,
            "slots": source.slots,
        }

    def do_feed_start(self, id: str, order: dict[str, Any], epochs: int) -> bool:
        """Begins to deliver."""
        _feeds[id].start(order, epochs)
        return True

    def do_feed_wait(self, id: str, seen: int) -> gate.Later:
        """Returns the state of the delivery, once more than seen epochs are delivered or it has ended."""
        feeding = _feeds[id]
        return gate.Later(lambda tell: feeding.wait(seen, tell))

    def do_feed_waits(self, id: str) -> str:
        """Returns why the delivery waits; "" if it does not."""
        return _feeds[id].source.waits()

    def do_feed_stop(self, id: str) -> bool:
        """Ends the delivery."""
        _feeds[id].cancel()
        return True

    def do_feed_again(self, id: str) -> gate.Later:
        """Ends the delivery, so that feed_start begins with the first record again; returns when it has."""
        before = _feeds[id]
        _feeds[id] = before.again()
        return gate.Later(before.ended)

    def do_feed_end(self, id: str, keep: bool) -> bool:
        """Ends the delivery and drops the data; with keep, the value of inference stays for do_feed_value."""
        if feeding := _feeds.pop(id, None):
            feeding.cancel()
            if feeding.value is not None:
                values[id] = feeding.value
        if not keep:
            values.pop(id, None)
        return True

    def do_feed_value(self, id: str, into: str) -> dict[str, Any]:
        """Reports whether inference has a value; stores it under the name into. It is kept until taken."""
        from tfcluster import feed_predictions

        if id not in values:
            return {"found": False, "text": ""}
        if into:
            self._globals[into] = values[id]
        return {"found": True, "text": feed_predictions.text(values[id])}

    def do_cwd(self) -> str:
        """Returns the base of relative paths."""
        return os.getcwd()


def name_session(session: Any) -> tuple[str, dict[str, Any]]:
    """Returns the name of a session that reserve() is called with, and the object that a Python call gives by it.

    The name of a SparkSession or a SparkContext is its own as long as it exists: a later call with the same
    object means the same cluster, one with another object does not. A name of a variable stays as it is.
    """
    if isinstance(session, str):
        return session, {}
    if not _is_session(session) and not _is_context(session):
        what = f"the class {session.__name__}" if isinstance(session, type) else _a(session)
        raise UsageError(
            f"reserve(session=…) got {what}: give a SparkSession, a SparkContext, or the name of a variable with one"
        )
    if why := _ended(session):
        raise UsageError(
            f"reserve(session=…): {why}: make it again and give the new one, or give master= for a session of the "
            "cluster's own"
        )
    name = _identity(session)
    return name, {name: session}


def _ended(session: Any) -> str:
    """Returns why a SparkSession or a SparkContext has ended; "" while it lives."""
    from tfcluster import spark_session

    if _is_context(session) and session._jsc is None:
        return "the SparkContext was stopped"
    why = spark_session.Session(_session_of(session)).ended()
    return why.replace("SparkSession", "SparkContext") if _is_context(session) else why


def _identity(session: Any) -> str:
    """Returns a name that no other session has, in this process or another."""
    name: str = vars(session).setdefault("_tfcluster_identity", f"session_{secrets.token_hex(4)}")
    return name


def _is_session(value: Any) -> bool:
    return _is_pysparks(value, "SparkSession")


def _is_context(value: Any) -> bool:
    return _is_pysparks(value, "SparkContext")


def _is_pysparks(value: Any, name: str) -> bool:
    """Reports whether a value is of pyspark's class of that name, or of one derived from it."""
    return any(kind.__name__ == name and kind.__module__.startswith("pyspark.") for kind in type(value).__mro__)


def _session_of(value: Any) -> Any:
    """Returns the SparkSession of a SparkContext, always the same; a session as it is."""
    if not _is_context(value):
        return value
    made = vars(value).get("_tfcluster_session")
    if made is None:
        from pyspark.sql import SparkSession

        made = vars(value).setdefault("_tfcluster_session", SparkSession(value))
    return made


def _bound(what: str, size: int, most: int) -> None:
    if size > most:
        raise UsageError(
            f"{what} has {size >> 20} MB with the objects that it uses, more than {most >> 20}: load data in the "
            "program instead"
        )


def _a(value: Any) -> str:
    name = type(value).__name__
    return ("an " if name[:1].lower() in "aeiou" else "a ") + name
