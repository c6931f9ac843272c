"""The check of a Spark Connect session's server."""

from __future__ import annotations

from typing import Any


def answers(spark: Any, seconds: float) -> bool:
    """Reports whether the server answers a request within this time.

    A server that hangs keeps its connections open, so the state of the channel is not enough.
    """
    client = getattr(spark, "_client", None)
    channel = getattr(client, "_channel", None)
    if channel is None:
        return True  # another kind of client: its calls fail if the server does not answer
    import grpc

    try:
        request, config, metadata = (
            client._config_request_with_metadata(),
            client._stub.Config,
            client._builder.metadata(),
        )
        request.operation.get_option.keys.append("spark.app.name")  # the server reads it at once
    except AttributeError:  # a client that builds its requests in another way
        return connected(channel, seconds)
    try:
        config(request, metadata=metadata, timeout=seconds, wait_for_ready=True)
    except grpc.RpcError as e:
        return e.code() not in (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.UNAVAILABLE,
        )  # an error is an answer too
    except ValueError:  # spark.stop() has closed the channel, and sets is_stopped next
        return False
    return True


def connected(channel: Any, seconds: float) -> bool:
    """Reports whether the channel is connected, or can be within this time."""
    import grpc

    ready = grpc.channel_ready_future(channel)
    try:
        ready.result(timeout=seconds)
    except grpc.FutureTimeoutError:
        return False
    finally:
        ready.cancel()
    return True
