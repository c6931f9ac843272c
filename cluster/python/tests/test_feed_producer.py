"""A producer of a feed: what it skips, and to which holder it goes."""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator
from typing import IO, Any

import pytest

from tfcluster import feed_frame, feed_link, feed_predict, feed_source, feed_spark, jsonlines

pa = pytest.importorskip("pyarrow")


def batches(*lengths: int) -> Iterator[object]:
    """Record batches with consecutive numbers."""
    begin = 0
    for n in lengths:
        yield pa.RecordBatch.from_pydict({"x": list(range(begin, begin + n))})
        begin += n


@pytest.mark.parametrize("skip", [0, 1, 3, 4, 9])
def test_skip(skip: int) -> None:
    """An attempt delivers what is behind the records of earlier ones."""
    stream = batches(3, 1, 5)
    got = [x for b in feed_source._after(skip, next(stream), stream) for x in b.column("x").to_pylist()]
    assert got == list(range(skip, 9))


def test_fewer_than_before() -> None:
    """A partition that has become shorter than what was delivered is refused."""
    stream = batches(3, 1)
    with pytest.raises(feed_source.Refused, match="6 records fewer"):
        list(feed_source._after(10, next(stream), stream))


COLUMNS = {
    "number": pa.array(range(1000), pa.int32()),
    "flag": pa.array([n % 3 == 0 for n in range(1000)]),
    "text": pa.array(["ä" * (n % 5) + str(n) for n in range(1000)]),
    "bytes": pa.array([bytes([n % 256]) * (n % 7) for n in range(1000)]),
    "image": pa.array([[[float(n), 1.0], [2.0, 3.0]] for n in range(1000)], pa.list_(pa.list_(pa.float32()))),
    "fixed": pa.FixedSizeListArray.from_arrays(pa.array(range(3000)), 3),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_records_are_known_again(name: str) -> None:
    """Their digest does not depend on how they are cut, and is another one in another order."""
    batch = pa.RecordBatch.from_arrays([COLUMNS[name]], names=[name])

    def digest(*parts: object) -> str:
        seen = feed_source.Records()
        return [seen.add(part) for part in parts][-1]

    whole = digest(batch)
    for at in (1, 31, 32, 33, 500, 999):
        assert digest(batch.slice(0, at), batch.slice(at)) == whole
    assert digest(*(batch.slice(n, 7) for n in range(0, 1000, 7))) == whole
    assert digest(batch.slice(0, 900)) != whole  # fewer
    first = batch.slice(0, 100)  # blocks of a shuffle that arrive in another order
    assert digest(first, batch.slice(300, 700), batch.slice(100, 200)) != digest(first, batch.slice(100, 900))


def test_another_order() -> None:
    """An attempt that has other records where an earlier one delivered some is refused."""
    seen, again = feed_source.Records(), feed_source.Records()
    digest = [seen.add(batch) for batch in batches(40, 60)][-1]
    rest = [x for b in feed_source._after(100, *taken(70, 100), again, digest) for x in b.column("x").to_pylist()]
    assert rest == list(range(100, 170))
    assert again.add(pa.RecordBatch.from_pydict({"x": rest})) == [seen.add(b) for b in batches_of(rest)][-1]
    other = pa.RecordBatch.from_pydict({"x": [0, *range(99, 0, -1), *range(100, 170)]})
    with pytest.raises(feed_source.Refused, match="computed again in another order: 100 of its records were delivered"):
        list(feed_source._after(100, other, iter(()), feed_source.Records(), digest))


def taken(*lengths: int) -> tuple[object, Iterator[object]]:
    """The first batch and the others."""
    stream = batches(*lengths)
    return next(stream), stream


def batches_of(numbers: list[int]) -> Iterator[object]:
    """The same records in other batches."""
    for at in range(0, len(numbers), 11):
        yield pa.RecordBatch.from_pydict({"x": numbers[at : at + 11]})


class Frame:
    """A DataFrame whose job does something else."""

    columns = ()
    sparkSession = types.SimpleNamespace(addTag=lambda tag: None, removeTag=lambda tag: None)  # noqa: N815

    def __init__(self, job: Callable[[], None]) -> None:
        self._job = job

    def selectExpr(self) -> Frame:  # noqa: N802
        """It has no columns."""
        return self

    def mapInArrow(self, stage: object, schema: str) -> Frame:  # noqa: N802
        """The stage is not run."""
        return self

    def collect(self) -> list[object]:
        """Does the job."""
        self._job()
        return []


def test_feeds_overlap() -> None:
    """A feed that was given up ends late: the functions of the next one travel whole nevertheless."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="missing: pyspark")
    whole = []

    def job() -> None:
        feed_frame.SparkFrame(Frame(lambda: None), {}).read({}, 0)
        whole.append({"tfcluster.feed_link", "tfcluster.feed_source"} <= cloudpickle.list_registry_pickle_by_value())

    feed_frame.SparkFrame(Frame(job), {}).read({}, 0)
    assert whole == [True]


EXECUTOR = """
import pickle, sys
link = pickle.load(sys.stdin.buffer)(sys.argv[1])
link.send("hello", name="ü")
assert link.receive()["size"] == 3
print(link._received.files.popleft() > 2, [name for name in sys.modules if name.startswith("tfcluster")])
"""


def test_a_link_travels_whole(tmp_path: pathlib.Path) -> None:
    """An executor of Spark has no package tfcluster: a connection to a holder works there without it."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="missing: pyspark")
    feed_spark.whole(feed_source)
    path = str(tmp_path / "holder.sock")
    with socket.socket(socket.AF_UNIX) as listener, open("/dev/null", "rb") as file:
        listener.bind(path)
        listener.listen()
        executor = subprocess.Popen(
            [sys.executable, "-I", "-c", EXECUTOR, path], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert executor.stdin
        executor.stdin.write(cloudpickle.dumps(feed_link.Link))
        executor.stdin.close()
        listener.settimeout(60)
        conn, _ = listener.accept()
        with conn, conn.makefile("rb") as lines:
            assert json.loads(lines.readline()) == {"op": "hello", "name": "ü"}
            jsonlines.write(conn, jsonlines.encode({"op": "memory", "size": 3}), [file.fileno()])
            assert executor.stdout and executor.stdout.read() == b"True []\n"
        assert executor.wait(60) == 0
        executor.stdout.close()


def test_a_python_that_spark_took_away() -> None:
    """A job that fails by that runs again, a few times; one that fails in another way does not."""
    taken = "Job aborted: Lost task 0.0 in stage 2.0: java.nio.channels.CancelledKeyException\n\tat java.base/sun.nio"
    for said, runs, error in (([taken, ""], 2, ""), ([taken] * 9, 4, taken), (["another", ""], 1, "another")):
        left = list(said)

        def job(left: list[str] = left) -> None:
            if reason := left.pop(0):
                raise RuntimeError(reason)

        with pytest.raises(RuntimeError, match=re.escape(error)) if error else contextlib.nullcontext():
            assert feed_frame.SparkFrame(Frame(job), {}).read({}, 0) == 0
        assert len(said) - len(left) == runs
    stops = Frame(lambda: None)
    source = feed_frame.SparkFrame(stops, {})
    runs = []

    def cancelled() -> None:
        runs.append(source.cancel())
        raise RuntimeError(taken)

    stops._job = cancelled
    with pytest.raises(RuntimeError, match="CancelledKeyException"):
        source.read({}, 0)
    assert len(runs) == 1  # what cancels a feed may come between two runs


def test_holders() -> None:
    """Partitions take turns among the tasks on this host."""
    with tempfile.TemporaryDirectory(prefix="tf") as folder:  # short: it holds sockets
        listening = {}
        for name in ("a", "b"):
            listening[name] = socket.socket(socket.AF_UNIX)
            listening[name].bind(str(pathlib.Path(folder, name)))
            listening[name].listen()
            listening[name].settimeout(5)
        order = {"holders": [{"task": n, "socket": f"{folder}/{n}"} for n in listening]}

        def reached(partition: int, **more: object) -> str:
            link = feed_source._connect({**order, **more}, partition)
            name = pathlib.Path(link._socket.getpeername()).name
            listening[name].accept()[0].close()
            link.close()
            return name

        assert [reached(n) for n in range(3)] == ["a", "b", "a"]
        assert reached(1, first=True) == "a"
        pathlib.Path(folder, "a").unlink()
        assert [reached(n) for n in range(3)] == ["b"] * 3
        pathlib.Path(folder, "b").unlink()
        with pytest.raises(feed_link.Stopped, match="no executor of the cluster is on"):
            feed_source._connect(order, 0)
        for each in listening.values():
            each.close()


class Driver:
    """A driver's port and the holder behind it: it serves one producer that has the right certificate."""

    def __init__(self, folder: pathlib.Path, name: str = "coordinator") -> None:
        authority = folder / "authority"
        run = functools.partial(subprocess.run, check=True, cwd=folder, capture_output=True)
        new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1"
        run(f"{new} -keyout authority.key -out authority -subj /CN=authority".split())
        for who, subject in (("driver", name), ("producer", "feed-1")):
            sign = f"{new} -CA authority -CAkey authority.key -keyout {who}.key -out {who} -subj /CN={subject}"
            run([*sign.split(), "-addext", f"subjectAltName=DNS:{subject}", "-addext", "basicConstraints=CA:FALSE"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "driver", folder / "driver.key")
        context.load_verify_locations(authority)
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["tfcluster-feed"])
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._context = context
        self.route = {
            "address": f"127.0.0.1:{self._listening.getsockname()[1]}",
            "authority": authority.read_text(),
            "certificate": (folder / "producer").read_text(),
            "key": (folder / "producer.key").read_text(),
        }
        self.heard: list[object] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        try:
            with self._listening, self._context.wrap_socket(self._listening.accept()[0], server_side=True) as conn:
                self.heard.append(conn.selected_alpn_protocol())
                self._speak(conn, conn.makefile("rb"))
        except (OSError, AssertionError) as e:
            self.failure = e

    def _speak(self, conn: ssl.SSLSocket, lines: IO[bytes]) -> None:
        """Takes a partition in inference and gives each record's double."""

        def say(**message: object) -> None:
            conn.sendall(json.dumps(message).encode() + b"\n")

        hello = json.loads(lines.readline())
        self.heard.append((hello["op"], hello["feed"], hello["key"]))
        say(op="lease", size=8 << 14, slots=8, skip=0)
        results: dict[int, bytes] = {}
        while line := lines.readline():
            message = json.loads(line)
            match message["op"]:
                case "slot":
                    say(op="slot", slot=len(self.heard) % 8)
                case "put":
                    batch = pa.ipc.open_stream(lines.read(message["bytes"])).read_next_batch()
                    self.heard.append(batch.num_rows)
                    out = pa.RecordBatch.from_pydict({"y": [2 * x for x in batch.column("x").to_pylist()]})
                    sink = pa.BufferOutputStream()
                    with pa.ipc.new_stream(sink, out.schema) as writer:
                        writer.write_batch(out)
                    results[message["piece"]] = sink.getvalue().to_pybytes()
                    piece = message["piece"]
                    size = len(results[piece])
                    say(op="results", slot=piece, bytes=size, piece=piece, begin=0, end=batch.num_rows)
                case "fetch":
                    say(op="slot", slot=0)  # comes between
                    say(op="bytes", slot=message["slot"], bytes=len(results[message["slot"]]))
                    conn.sendall(results[message["slot"]])
                case "done":
                    say(op="done", rows=0)

    def end(self) -> None:
        """Waits for the end of the connection."""
        self._thread.join(10)
        assert not self._thread.is_alive()


def order_of(driver: Driver) -> dict[str, object]:
    """An order whose holders are on another host."""
    return {
        "feed": 1,
        "key": "secret",
        "holders": [{"task": "worker:0", "socket": "/absent"}],
        "route": driver.route,
    }


def test_carried(tmp_path: pathlib.Path) -> None:
    """Batches follow their lines, and results come back in their order."""
    driver = Driver(tmp_path)
    pairs = ((batch, batch) for batch in batches(3000, 1, 4000))
    got = list(feed_predict.exchange(order_of(driver), 0, 0, 0, pairs))
    assert [2 * x for beside, _ in got for x in beside.column("x").to_pylist()] == [
        y for _, results in got for y in results.column("y").to_pylist()
    ]
    driver.end()
    assert driver.failure is None
    assert driver.heard[:2] == ["tfcluster-feed", ("produce", 1, "secret")]
    rows = driver.heard[2:]
    assert sum(rows) == 7001 and len(rows) > 3  # cut to slots of 16 kB


class Paired(feed_link.Carried):
    """A carried connection to a socket of this process."""

    def _connected(self, route: Any) -> Any:
        return route["socket"]


def test_another_thread_sends_beside_a_batch() -> None:
    """What follows "put" is the batch, whatever other threads send."""
    ours, theirs = socket.socketpair()
    link = Paired({"address": "x", "socket": ours})
    slot = link.memory({"size": 1 << 20, "slots": 1}, writable=True).slot(0)
    batches, others = 50, 2000

    def put() -> None:
        for n in range(batches):
            slot[:] = bytes([n]) * len(slot)
            link.send("put", slot=0, bytes=len(slot), rows=n)

    def free() -> None:
        for n in range(others):
            link.send("taken", slot=n)

    threads = [threading.Thread(target=work) for work in (put, free)]
    for thread in threads:
        thread.start()
    heard = {"put": 0, "taken": 0}
    with theirs.makefile("rb") as lines:
        for _ in range(batches + others):
            message = json.loads(lines.readline())
            heard[message["op"]] += 1
            if message["op"] == "put":
                assert lines.read(message["bytes"]) == bytes([message["rows"]]) * message["bytes"]
    for thread in threads:
        thread.join()
    assert heard == {"put": batches, "taken": others}
    link.close()
    theirs.close()


def test_another_driver(tmp_path: pathlib.Path) -> None:
    """A producer speaks with the cluster's driver alone."""
    driver = Driver(tmp_path, "0")  # an executor of the same cluster
    with pytest.raises(feed_link.Stopped, match="does not reach the driver at 127.0.0.1.*--advertise HOST"):
        feed_source.deliver(order_of(driver), 0, 0, 0, batches(3))
    driver.end()
    assert isinstance(driver.failure, ssl.SSLError) and driver.heard == []


def test_no_driver() -> None:
    """Where nobody listens, the error says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    order = {"feed": 1, "key": "k", "holders": [{"task": "a", "socket": "/absent"}], "route": {"address": address}}
    with pytest.raises(feed_link.Stopped, match=f"does not reach the driver at {address} .*Connection refused"):
        feed_source.deliver(order, 0, 0, 0, batches(3))
