"""Whether the server of a Spark Connect session answers."""

from __future__ import annotations

from typing import Any


def answers(spark: Any, seconds: float) -> bool:
    """Whether the server answers a request within this time. A server that hangs keeps its connections open, so the
    state of the channel alone says little."""
    client = getattr(spark, "_client", None)
    channel = getattr(client, "_channel", None)
    if channel is None:
        return True  # a client of another kind: its calls fail where it does not
    import grpc

    try:
        request, config, metadata = (
            client._config_request_with_metadata(),
            client._stub.Config,
            client._builder.metadata(),
        )
        request.operation.get_option.keys.append("spark.app.name")  # of the session: the server looks it up at once
    except AttributeError:  # a client that makes its requests otherwise
        return connected(channel, seconds)
    try:
        config(request, metadata=metadata, timeout=seconds, wait_for_ready=True)
    except grpc.RpcError as e:
        return e.code() not in (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.UNAVAILABLE,
        )  # an error is an answer too
    return True


def connected(channel: Any, seconds: float) -> bool:
    """Whether the connection stands, or can be made in this time."""
    import grpc

    ready = grpc.channel_ready_future(channel)
    try:
        ready.result(timeout=seconds)
    except grpc.FutureTimeoutError:
        return False
    finally:
        ready.cancel()
    return True
