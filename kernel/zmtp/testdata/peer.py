"""Talks to a ROUTER that echoes and to an XPUB that publishes topic.x: peer.py HOST:PORT HOST:PORT."""

import sys

import zmq


def main(router: str, xpub: str) -> None:
    """Raise an exception if an answer is missing or wrong."""
    context = zmq.Context()
    context.setsockopt(zmq.RCVTIMEO, 20_000)
    context.setsockopt(zmq.LINGER, 0)

    req = context.socket(zmq.REQ)
    req.connect(f"tcp://{router}")
    req.send(b"ping")
    assert req.recv() == b"ping"

    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.IDENTITY, b"client-1")
    dealer.setsockopt(zmq.HEARTBEAT_IVL, 20)  # answered, or libzmq closes the connection
    dealer.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2000)
    dealer.connect(f"tcp://{router}")
    for size in (0, 1, 255, 256, 70_000, 64 << 20):
        frames = [b"", b"x" * size, b"end"]
        dealer.send_multipart(frames)
        assert dealer.recv_multipart() == frames, size
    assert dealer.poll(200) == 0  # several heartbeats

    sub = context.socket(zmq.SUB)
    sub.connect(f"tcp://{xpub}")
    sub.subscribe(b"nothing")
    sub.subscribe(b"topic.")
    assert sub.recv_multipart() == [b"topic.x", b"news"]
    sub.unsubscribe(b"topic.")
    while sub.poll(200):  # messages still in transit
        sub.recv_multipart()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
