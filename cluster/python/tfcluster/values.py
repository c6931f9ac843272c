"""tfcluster.reserve(), Cluster and Run: the verbs of %tfcluster as a Python API.

Options are %tfcluster's: --worker-memory 4g is worker_memory="4g", a repeated
option takes a list, K=V takes a dict, a flag True.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfcluster import engine_session, frontend, gate, objects
from tfcluster.errors import UsageError
from tfcluster.objects import Objects


def reserve(*, roles: Mapping[str, Any] | None = None, session: Any = None, **options: Any) -> Cluster:
    """Reserves executors and waits until all are ready; returns a running cluster with equal options at once.

    roles has options by role: {"worker": 4, "db": {"count": 1, "kind": "sidecar", "command": "serve"}}.
    session is the SparkSession or SparkContext to run on, or the name of a variable that has it.
    """
    given: dict[str, Any] = {}
    if session is not None:
        options["session"], given = objects.name_session(session)
    return _command("reserve", {**_roles(roles or {}), **options}, given=given)


def attach(name: str | None = None) -> Cluster:
    """Returns a running cluster; by default this notebook's last one, elsewhere the only live one."""
    return _command("attach", {}, [name] if name else [])


class Cluster:
    """A reserved cluster. As a context manager it is released at the end."""

    def __init__(self, name: str, backend: str = "", dir: str = "", executors: int = 0, **more: Any) -> None:
        self.name = name
        self.backend = backend
        self.dir = dir
        self.executors = executors
        self.roles: dict[str, int] = dict(more.get("roles") or {})

    def __repr__(self) -> str:
        return f"Cluster(name={self.name!r}, backend={self.backend!r}, executors={self.executors})"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown(force=True)

    def _do(self, verb: str, options: Mapping[str, Any], words: Iterable[Any] = (), **given: Any) -> Any:
        return _command(verb, {"cluster": self.name, **options}, words, given)

    def start(
        self,
        program: Callable[..., Any] | str | None = None,
        args: Any = None,
        *,
        words: Iterable[Any] = (),
        **options: Any,
    ) -> Run:
        """Starts main_fun(args, ctx), a script by its path, or with again=True the last program and its args.

        It returns when all tasks have entered the program.
        """
        given: dict[str, Any] = {}
        positional: list[Any] = []
        if callable(program):
            given["main_fun"] = program
            positional = ["main_fun"]
        elif program is not None:
            positional = [program]
        if args is not None:
            given["args"] = args
            options["args"] = "args"
        return self._do("start", options, [*positional, *words], **given)

    def wait(self, **options: Any) -> Run:
        """Waits for the run's end; raises RunFailed if it failed."""
        return self._do("wait", options)

    def train(self, data: Any = None, epochs: int | None = None, **options: Any) -> Run:
        """Feeds data and waits; without data it is the same as wait()."""
        return self._do("train", {"epochs": epochs, **options}, _data(data), **_given(data))

    def evaluate(self, data: Any, **options: Any) -> Any:
        """Feeds data with ctx.mode == "evaluate"; returns a dict of the metrics."""
        return self._do("evaluate", options, _data(data), **_given(data))

    def inference(self, data: Any, **options: Any) -> Any:
        """Feeds data with ctx.mode == "inference"; returns it with a column `prediction`.

        The value is of the same kind of object as data.
        keep=["a", "b"] names the columns of the data to keep; output="PATH" writes Parquet instead.
        """
        return self._do("inference", options, _data(data), **_given(data))

    def look(self) -> Any:
        """Returns what `status --json` prints, and shows nothing."""
        return _command("status", {"cluster": self.name}, screen=frontend.Nowhere())

    def status(self, **options: Any) -> Any:
        """Shows the cluster and its run; returns what `status --json` prints."""
        return self._do("status", options)

    def logs(self, **options: Any) -> None:
        """Shows the tasks' lines: lines=, follow=, task=, grep=, since=, run=."""
        if "n" in options:
            options["lines"] = options.pop("n")
        self._do("logs", options)

    def stacks(self, *tasks: str, **options: Any) -> dict[str, Any]:
        """Shows what the tasks' threads are doing now; returns what `stacks --json` prints.

        Tasks are "worker:1", "worker" or "worker:0-2"; without one, all.
        """
        return self._do("stacks", options, tasks)

    def why(self, **options: Any) -> dict[str, Any]:
        """Shows which tasks hold the run up, or how the last run ended; returns what `why --json` prints."""
        return self._do("why", options)

    def tensorboard(self, **options: Any) -> None:
        """Shows TensorBoard."""
        self._do("tensorboard", options)

    def gpus(self, **options: Any) -> list[dict[str, Any]]:
        """Shows the GPUs and their holders; returns a dict for each GPU."""
        return self._do("gpus", options)

    def history(self, *runs: int, **options: Any) -> Any:
        """Shows the runs; returns a Run for each, the oldest first.

        history(3, 5, diff=True) returns a dict of the changes between two runs, history(compare=True) a list
        of dicts with the differences between runs and their metrics.
        """
        return self._do("history", options, [str(run) for run in runs])

    def stop(self) -> None:
        """Ends the run; keeps the executors."""
        self._do("stop", {})

    def reset(self, *, hard: bool = False) -> None:
        """Ends hanging and orphaned processes and replaces lost executors."""
        self._do("reset", {"hard": hard})

    def detach(self) -> Run:
        """Lets the run continue when this kernel shuts down."""
        return self._do("detach", {})

    def spark(self) -> Any:
        """Returns the cluster's SparkSession: the one it was reserved on, or the driver's over Spark Connect."""
        return engine_session.of_cluster(self.name)

    def shutdown(self, *, force: bool = False) -> None:
        """Releases the cluster."""
        self._do("shutdown", {"force": force})


class History(dict[str, list[float]]):
    """The values of a run's metrics by name; steps has the steps of these values by name.

    Metrics may be reported at different steps. to_pandas() joins them by step:

        run.history.to_pandas()[["loss", "val_loss"]].plot()
    """

    def __init__(self, values: Mapping[str, list[float]] = {}, steps: Mapping[str, list[int]] = {}) -> None:
        super().__init__(values)
        self.steps: dict[str, list[int]] = dict(steps)

    def rows(self) -> list[dict[str, float]]:
        """Returns a dict for each step, with "step" and the metrics reported there."""
        rows: dict[int, dict[str, float]] = {}
        for name, values in self.items():
            for step, value in zip(self.steps.get(name, range(len(values))), values, strict=False):
                rows.setdefault(step, {"step": step})[name] = value
        return [rows[step] for step in sorted(rows)]

    def to_pandas(self) -> Any:
        """Returns a pandas DataFrame: a column per metric, steps as index, NaN where a metric is missing."""
        import pandas

        return pandas.DataFrame(self.rows(), columns=["step", *self]).set_index("step")


class Run:
    """The state of a run when the call that returned it ended.

    id, state, metrics, log_dir, checkpoint_dir, export_dir, exit_codes, seconds
    metrics  the last value of each metric
    history  all values of each metric, see History: history["loss"], history.to_pandas()
    result   the value that main_fun returned on the chief or worker 0
    results  the value that it returned on each successful task, by the task's name
    """

    def __init__(self, **said: Any) -> None:
        self._update(said)

    def _update(self, said: Mapping[str, Any]) -> None:
        self.cluster = str(said.get("cluster") or "")
        self.id = int(said.get("id") or 0)
        self.state = str(said.get("state") or "")
        self.program = str(said.get("program") or "")
        self.metrics: dict[str, float] = dict(said.get("metrics") or {})
        self.history = History(said.get("history") or {}, said.get("steps") or {})
        self.log_dir = str(said.get("log_dir") or "")
        self.checkpoint_dir = str(said.get("checkpoint_dir") or "")
        self.export_dir = str(said.get("export_dir") or "")
        self.exit_codes: dict[str, int] = dict(said.get("exit_codes") or {})
        self.seconds = float(said.get("seconds") or 0)
        self._result = {key: said.get(key) for key in ("result", "result_pickle", "result_repr")}
        self._results: dict[str, Mapping[str, Any]] = dict(said.get("results") or {})

    @property
    def result(self) -> Any:
        """Returns main_fun's value on the chief or worker 0; its repr if the value cannot be transferred.

        In a cluster with neither, it is the value of the first task of the first tracked role.
        """
        return _returned(self._result)

    @property
    def results(self) -> dict[str, Any]:
        """Returns main_fun's value on each successful task, as {"worker:0": value}; empty during the run.

        A task that returned nothing has None. If the values are too large together, some are reprs.
        """
        return {task: _returned(self._results[task]) for task in sorted(self._results, key=_place)}

    def __repr__(self) -> str:
        metrics = "".join(f", {name}={value:.4g}" for name, value in self.metrics.items())
        return f"Run(id={self.id}, state={self.state!r}{metrics})"

    def wait(self, **options: Any) -> Run:
        """Waits for this run's end and updates this object; raises RunFailed if it failed."""
        if self.state in ("finished", "failed", "stopped"):
            return self
        ended = _command("wait", {"cluster": self.cluster, **options})
        self.__dict__.update(ended.__dict__)
        return self


class _Shown:
    """Data that a verb has shown already: IPython shows it in later cells only."""

    _cell: int | None = None  # the cell that the verb ran in

    def _ipython_display_(self) -> None:
        if self._cell is None or self._cell != frontend.cell():
            raise NotImplementedError  # IPython tries the other forms


class _Record(_Shown, dict[str, Any]):
    pass


class _Records(_Shown, list[Any]):
    pass


def shown(said: Mapping[str, Any] | None) -> Any:
    """Returns the object for a value of Go that the running cell has shown."""
    value = make(said)
    if isinstance(value, _Shown):
        value._cell = frontend.cell()
    return value


def make(said: Mapping[str, Any] | None) -> Any:
    """Returns the object for a value of Go."""
    if said is None:
        return None
    fields = {k: v for k, v in said.items() if k != "type"}
    match said.get("type"):
        case "Cluster":
            return Cluster(**fields)
        case "Run":
            return Run(**fields)
        case "Object":
            return objects.values.pop(fields["id"], None)
        case "Answer":
            data = said.get("data")
            if isinstance(data, Mapping):
                return make(data) if "type" in data else _Record(data)
            return _Records(make(each) for each in data or ())
    return fields


def _returned(said: Mapping[str, Any]) -> Any:
    """Returns a task's value: unpickled, otherwise from its JSON or its repr."""
    if pickled := said.get("result_pickle"):
        try:
            return pickle.loads(base64.b64decode(pickled))
        except Exception:
            pass  # a class that this Python does not have: use JSON or the repr
    told = said.get("result")
    return told if told is not None else said.get("result_repr")


def _place(task: str) -> tuple[str, int]:
    """Returns the sort key of a task: the role, then the index as a number."""
    role, _, index = task.partition(":")
    return role, int(index or 0)


def _data(data: Any) -> list[str]:
    if data is None:
        return []
    return [data if isinstance(data, str) else "data"]


def _given(data: Any) -> dict[str, Any]:
    """Returns the object that _data names."""
    return {} if data is None or isinstance(data, str) else {"data": data}


def _command(
    verb: str,
    options: Mapping[str, Any],
    words: Iterable[Any] = (),
    given: Mapping[str, Any] | None = None,
    screen: frontend.Screen | None = None,
) -> Any:
    argv = [verb, *_argv(options)]
    positional = [str(w) for w in words]
    if positional and positional[0].startswith("-"):
        raise UsageError(
            f"{positional[0]!r} is not a program: give options as keyword arguments, such as workers=2 for --workers 2"
        )
    namespace = frontend.user_namespace()
    request = {"op": "verb", "argv": [*argv, *positional]}
    return shown(gate.command(request, Objects(namespace, given=given), screen or frontend.Screen()))


def _roles(roles: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options for roles."""
    options: dict[str, Any] = {}
    own: dict[str, int] = {}
    for name, asked in roles.items():
        role = dict(asked) if isinstance(asked, Mapping) else {"count": asked}
        count = role.pop("count", 1)
        match name:
            case "worker":
                options["workers"] = count
            case "ps":
                options["ps"] = count
            case "chief" | "evaluator":
                if count not in (0, 1):
                    raise UsageError(f"a cluster has one {name} at most, not {count}: give {name}=True")
                options[name] = bool(count)
            case _:
                own[name] = count
        options.update({f"{name}_{key}": value for key, value in role.items()})
    return {**options, "role": own} if own else options


def _argv(options: Mapping[str, Any]) -> list[str]:
    argv: list[str] = []
    for key, value in options.items():
        name = "--" + key.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            argv.append(name)
        elif isinstance(value, Mapping):
            for k, v in value.items():
                argv.append(f"{name}={k}" if v is None else f"{name}={k}={v}")
        elif isinstance(value, list | tuple | set) and key.endswith("depends_on"):
            argv.append(f"{name}={','.join(map(str, value))}")
        elif isinstance(value, list | tuple | set):
            argv += [f"{name}={v}" for v in value]
        else:
            argv.append(f"{name}={value}")
    return argv


def from_json(text: str) -> Any:
    """Returns the object for a value of Go, from its JSON."""
    return make(json.loads(text))
