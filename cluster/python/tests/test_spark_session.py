"""Spark's own files, as a session of the cluster's own takes them over."""

from __future__ import annotations

import concurrent.futures
import pathlib
import threading
import time
import types

import pytest

from tfcluster import spark_properties, spark_session


def test_defaults_are_read_as_java_reads_them(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key ends at a space, = or :, and an = in a value belongs to it."""
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n! another\n\n"
        "  spark.driver.extraJavaOptions   -Da=1 -XX:+UseSerialGC\n"
        "spark.b=c=d\nspark.c : e\nspark.d\tf g \n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert spark_properties.defaults() == {
        "spark.driver.extraJavaOptions": "-Da=1 -XX:+UseSerialGC",
        "spark.b": "c=d",
        "spark.c": "e",
        "spark.d": "f g",
    }


def test_a_folder_called_conf_is_not_sparks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SPARK_HOME the settings are pyspark's, not those of a folder conf where the notebook is."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.a b\n")
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert "spark.a" not in spark_properties.defaults()


@pytest.mark.parametrize("version", ["3.4.4", "3.5.8"])
def test_a_server_without_a_token_is_never_started(version: str) -> None:
    """The Spark Connect server of Spark 3 listens on every address and lets anybody in."""
    session = spark_session.Session(types.SimpleNamespace(version=version, sparkContext=None))  # touching it would fail
    with pytest.raises(RuntimeError, match=f"Spark {version} lets anybody in"):
        session.share()


class Connect:
    """A session of Spark Connect's, as far as its server is looked at."""

    is_stopped = False

    def __init__(self, address: str) -> None:
        import grpc

        self._client = types.SimpleNamespace(_channel=grpc.insecure_channel(address))


Connect.__module__ = "pyspark.sql.connect.session"


def test_a_connect_server_that_died_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked whether it is there before a cluster is reserved, and while one is held; a short silence is none."""
    import grpc

    monkeypatch.setattr(spark_session, "_LOOK", 0.1)
    monkeypatch.setattr(spark_session, "_FIRST", 60)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    session = spark_session.Session(Connect(f"127.0.0.1:{port}"))
    try:
        assert session.connect
        assert session.unusable() == ""
        time.sleep(2 * spark_session._LOOK)
        assert session.ended() == ""
    finally:
        server.stop(None).wait()
    monkeypatch.setattr(spark_session, "_FIRST", 0.5)
    deadline = time.monotonic() + 60
    while session.answers(0.1) and time.monotonic() < deadline:  # the client has yet to hear of it
        time.sleep(0.01)
    assert session.unusable() == "its Spark Connect server does not answer within 0 s"
    time.sleep(2 * spark_session._LOOK)
    assert session.ended() == ""  # it may come again
    monkeypatch.setattr(spark_session, "_AWAY", 0.05)
    time.sleep(2 * spark_session._LOOK)
    assert session.ended().startswith("the Spark Connect server has not answered for")
    assert session.ended().startswith("the Spark Connect server has not answered for")  # asked again at once
    session.spark.is_stopped = True
    assert session.ended() == "the Spark Connect session was stopped"


@pytest.mark.parametrize("hangs", [True, False])
def test_a_connect_server_that_hangs_is_noticed(hangs: bool) -> None:
    """The server accepts connections and answers no request; an error is an answer."""
    import grpc

    go_on = threading.Event()

    class Server(grpc.GenericRpcHandler):
        """Answers every call with an error, or only at the end of the test."""

        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
                if hangs:
                    go_on.wait(60)
                context.abort(grpc.StatusCode.INTERNAL, "not today")
                return b""

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[Server()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    spark = Connect(f"127.0.0.1:{port}")
    client = spark._client
    client._config_request_with_metadata = lambda: types.SimpleNamespace(
        operation=types.SimpleNamespace(get_option=types.SimpleNamespace(keys=[]))
    )
    client._stub = types.SimpleNamespace(
        Config=client._channel.unary_unary("/Config", request_serializer=lambda _: b"")
    )
    client._builder = types.SimpleNamespace(metadata=lambda: [])
    session = spark_session.Session(spark)
    try:
        assert session.answers(0.5 if hangs else 30) is not hangs
        client._channel.close()  # spark.stop() does so before it sets is_stopped
        session._looked = 0
        assert session.ended() == ""
    finally:
        go_on.set()
        client._channel.close()
        server.stop(None).wait()


def test_a_session_that_was_stopped_is_not_used() -> None:
    """A classic session whose spark.stop() was called."""
    session = spark_session.Session(types.SimpleNamespace(sparkContext=types.SimpleNamespace(_jsc=None)))
    assert session.unusable() == "the SparkSession was stopped"


def test_a_session_that_is_being_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """spark.stop() sets the JVM's flag seconds before Python's: the notebook's own stop is not called a kill."""

    class Stopping:
        """The JVM's context once it has its flag; Python's is set when somebody looks at it."""

        def sc(self) -> Stopping:
            return self

        def isStopped(self) -> bool:  # noqa: N802 - Spark's name
            threading.Timer(0.05, setattr, (context, "_jsc", None)).start()
            return True

    context = types.SimpleNamespace(_jsc=Stopping())
    session = spark_session.Session(types.SimpleNamespace(sparkContext=context))
    assert session.ended() == "the SparkSession was stopped"
    context._jsc = types.SimpleNamespace(sc=lambda: types.SimpleNamespace(isStopped=lambda: True))
    monkeypatch.setattr(spark_session, "_STOPPING", 0.05)
    assert session.ended() == "the Spark application was ended"
    session._made = True  # its process does not stop it before: there is nothing to wait for
    monkeypatch.setattr(spark_session, "_STOPPING", 60)
    began = time.monotonic()
    assert session.ended() == "the Spark application was ended"
    assert time.monotonic() - began < 30
