"""Talks as a CURVE client to a ROUTER that echoes and to an XPUB that publishes topic.x.

curve_peer.py HOST:PORT HOST:PORT SERVERKEY (the public key). First peers without keys, with another key, and that
are servers themselves must not get an answer. They stay, but libzmq must not try again.
"""

import sys
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

PATIENCE = 60_000


def connect(context: zmq.Context, kind: int, address: str, serverkey: bytes) -> zmq.Socket:
    """Return a connected socket with a key pair of its own."""
    socket = context.socket(kind)
    socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    socket.curve_serverkey = serverkey
    socket.connect(f"tcp://{address}")
    return socket


def refused(context: zmq.Context, address: str, options: dict[str, object]) -> zmq.Socket:
    """Raise an exception unless the connection ends without a handshake; return the socket, which may try again."""
    socket = context.socket(zmq.DEALER)
    for name, value in options.items():
        setattr(socket, name, value)
    monitor = socket.get_monitor_socket()
    socket.connect(f"tcp://{address}")
    socket.send(b"let me in")
    end = time.monotonic() + PATIENCE / 1000
    while monitor.poll(max(0, 1000 * (end - time.monotonic()))):
        event = recv_monitor_message(monitor)["event"]
        assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED, options
        if event in (zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
            assert socket.poll(0) == 0, options
            break
    else:
        raise AssertionError(f"not refused: {options}")
    socket.disable_monitor()
    monitor.close()
    return socket


def main(router: str, xpub: str, serverkey: bytes) -> None:
    """Raise an exception if an answer is missing or wrong."""
    context = zmq.Context()
    context.setsockopt(zmq.RCVTIMEO, PATIENCE)
    context.setsockopt(zmq.LINGER, 0)

    public, secret = zmq.curve_keypair()
    mine = {"curve_publickey": public, "curve_secretkey": secret}
    others = [
        refused(context, router, {}),
        refused(context, router, {**mine, "curve_serverkey": zmq.curve_keypair()[0]}),
        refused(context, router, {"plain_username": b"user", "plain_password": b"word"}),
    ]
    refused(
        context, router, {"curve_secretkey": secret, "curve_server": True}
    ).close()  # it says nothing until the deadline

    req = connect(context, zmq.REQ, router, serverkey)
    req.send(b"ping")
    assert req.recv() == b"ping"

    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.IDENTITY, b"client-1")
    dealer.setsockopt(zmq.HEARTBEAT_IVL, 20)  # answered, or libzmq closes the connection
    dealer.setsockopt(zmq.HEARTBEAT_TIMEOUT, 20_000)
    dealer.curve_publickey, dealer.curve_secretkey = public, secret
    dealer.curve_serverkey = serverkey
    dealer.connect(f"tcp://{router}")
    for size in (0, 1, 222, 223, 255, 256, 70_000, 10_000_000, 64 << 20):
        frames = [b"", b"x" * size, b"end"]
        dealer.send_multipart(frames)
        assert dealer.recv_multipart() == frames, size
    for n in range(1000):
        dealer.send_multipart([b"small", str(n).encode()])
    for n in range(1000):
        assert dealer.recv_multipart() == [b"small", str(n).encode()]
    assert dealer.poll(200) == 0  # several heartbeats

    subs = [connect(context, zmq.SUB, xpub, serverkey) for _ in range(3)]
    for sub in subs:
        sub.subscribe(b"nothing")
        sub.subscribe(b"topic.")
    for sub in subs:
        assert sub.recv_multipart() == [b"topic.x", b"news"]
    subs[0].unsubscribe(b"topic.")
    while subs[0].poll(200):  # messages still in transit
        subs[0].recv_multipart()
    assert subs[1].recv_multipart() == [b"topic.x", b"news"]
    assert not any(socket.poll(0) for socket in others)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3].encode())
