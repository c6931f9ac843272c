"""Lines of JSON with bytes after them and descriptors beside them."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from tfcluster import jsonlines


def test_lines() -> None:
    """Lines come whole, whatever the parts in which they arrive, and so do the bytes after them."""
    stream = b'{"op":"a"}\n\n{"op":"b"}\nbo\ndy{"op":"c"}\nrest'
    for part in (1, 3, 7, len(stream)):
        reader = jsonlines.Reader(100, "")
        found: list[bytes] = []
        for at in range(0, len(stream), part):
            reader.feed(stream[at : at + part])
            while True:
                taken = reader.body(5) if found and found[-1] == b'{"op":"b"}' else reader.line()
                if taken is None:
                    break
                found.append(bytes(taken))
        assert found == [b'{"op":"a"}', b"", b'{"op":"b"}', b"bo\ndy", b'{"op":"c"}'], part
        assert not reader.has_line()
        reader.feed(b"\n")
        assert reader.has_line() and list(reader.lines()) == [b"rest"]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_is_too_long(end: bytes) -> None:
    """It is refused as soon as it is too long; the longest line is not."""
    reader = jsonlines.Reader(10, "a line of the agent is too long")
    reader.feed(b"123456789\n")
    assert reader.line() == b"123456789"
    reader.feed(b"1234567890" + end)
    with pytest.raises(jsonlines.TooLong, match="of the agent"):
        reader.line()


def test_descriptors() -> None:
    """They come with their lines, and those that nobody took are closed."""
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    with ours, theirs:
        jsonlines.write(ours, jsonlines.encode({"op": "none"}))
        jsonlines.write(ours, jsonlines.encode({"op": "two"}), [write, write])
        os.close(write)
        reader = jsonlines.Reader(100, "")
        while len(reader.files) < 2:
            data, files, _, _ = socket.recv_fds(theirs, 1000, 4)
            reader.feed(data, files)
        assert list(reader.lines()) == [b'{"op": "none"}', b'{"op": "two"}']
        assert not any(os.get_inheritable(file) for file in reader.files)
        os.close(reader.files.popleft())
        reader.close()
        assert os.read(read, 1) == b""  # no descriptor of the pipe's other end is open
    os.close(read)


def test_a_long_line_with_a_descriptor_is_written_whole() -> None:
    """The descriptor goes with the first part that the socket takes."""
    ours, theirs = socket.socketpair()
    line = jsonlines.encode({"op": "x", "text": "x" * (4 << 20)})
    with ours, theirs, open("/dev/null", "rb") as file:
        writer = threading.Thread(target=jsonlines.write, args=(ours, line, [file.fileno()]))
        writer.start()
        received, came = bytearray(), []
        while len(received) < len(line):
            data, files, _, _ = socket.recv_fds(theirs, 1 << 16, 4)
            received += data
            came += files
        writer.join()
        assert received == line and len(came) == 1
        os.close(came[0])
