"""Encrypted channels (JEP 145) of the kernel named by $KERNEL, through jupyter_client and libzmq."""

import json
import os
import pathlib
import queue
import stat
import tempfile
import time
import unittest
from typing import Any

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from zmq.utils.monitor import recv_monitor_message

NAME = os.environ.get("KERNEL", "python3")
PATIENCE = 60
CHANNELS = {"shell": zmq.DEALER, "control": zmq.DEALER, "stdin": zmq.DEALER, "iopub": zmq.SUB, "hb": zmq.REQ}


class Kernel:
    """A kernel with a client and its log, for a while."""

    def __init__(self, policy: str, **options: Any) -> None:
        self.km = KernelManager(kernel_name=NAME, **options)
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (__exit__ closes it)
        self.km.start_kernel(transport_encryption=policy, stdout=self.log, stderr=self.log)
        self.clients: list[BlockingKernelClient] = []
        self.client = self.connect()

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.stop_channels()
        self.km.shutdown_kernel()
        self.log.close()

    def connect(self) -> BlockingKernelClient:
        """Return another client, from the connection file alone."""
        client = BlockingKernelClient(connection_file=self.km.connection_file)
        client.load_connection_file()
        client.start_channels()
        self.clients.append(client)
        client.wait_for_ready(timeout=PATIENCE)
        return client

    @property
    def file(self) -> dict[str, Any]:
        """The connection file."""
        return json.loads(pathlib.Path(self.km.connection_file).read_text())

    def endpoint(self, channel: str) -> str:
        """Where a channel is."""
        return f"tcp://127.0.0.1:{self.file[f'{channel}_port']}"

    def logged(self) -> str:
        """Everything that was logged."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def rejections(self, most: int) -> list[str]:
        """Return the lines about rejected peers, once there are this many. They follow the end of the connection."""
        end = time.monotonic() + PATIENCE
        while True:
            lines = [line for line in self.logged().splitlines() if "peer rejected" in line]
            if len(lines) >= most or time.monotonic() > end:
                return lines
            time.sleep(0.05)

    def text(self, code: str) -> str:
        """Run a cell and return what it prints."""
        return printed(self.client, self.client.execute(code))


def printed(client: BlockingKernelClient, request: str) -> str:
    """Return what a cell prints, as one client sees it."""
    text, end = "", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            m = client.get_iopub_msg(timeout=1)
        except queue.Empty:
            continue
        if m["parent_header"].get("msg_id") != request:
            continue
        if m["msg_type"] == "stream":
            text += m["content"]["text"]
        elif m["msg_type"] == "status" and m["content"]["execution_state"] == "idle":
            return text
    raise AssertionError(f"the cell does not end; so far {text[-200:]!r}")


def refused(endpoint: str, kind: int, options: dict[str, bytes]) -> bool:
    """Return whether a peer with these options is disconnected without a handshake."""
    context = zmq.Context()
    socket = context.socket(kind)
    socket.linger, socket.reconnect_ivl = 0, -1
    for name, value in options.items():
        setattr(socket, name, value)
    monitor = socket.get_monitor_socket()
    try:
        socket.connect(endpoint)
        end = time.monotonic() + PATIENCE
        while monitor.poll(max(0, 1000 * (end - time.monotonic()))):
            event = recv_monitor_message(monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                return False
            if event == zmq.EVENT_DISCONNECTED:
                return True
        raise AssertionError("neither admitted nor refused")
    finally:
        socket.disable_monitor()
        monitor.close()
        socket.close()
        context.term()


def descendants(pid: int) -> list[pathlib.Path]:
    """Return the /proc folders of a process and those below it."""
    folder = pathlib.Path("/proc") / str(pid)
    found = [folder]
    for task in (folder / "task").iterdir():
        for child in (task / "children").read_text().split():
            found += descendants(int(child))
    return found


class Encryption(unittest.TestCase):
    """Each value of transport_encryption, and what must never happen."""

    def check(self, policy: str, encrypted: bool) -> None:
        """Start a kernel with a policy and use it."""
        with Kernel(policy) as k:
            self.assertEqual("curve_publickey" in k.file and "curve_secretkey" in k.file, encrypted)
            self.assertEqual(stat.S_IMODE(os.stat(k.km.connection_file).st_mode), 0o600)
            self.assertEqual(k.text("print(6 * 7)"), "42\n")
            self.assertTrue(k.client.hb_channel.is_beating())
            for channel, kind in CHANNELS.items():
                self.assertEqual(refused(k.endpoint(channel), kind, {}), encrypted, channel)

    def test_disabled(self) -> None:
        """Clear text."""
        self.check("disabled", False)

    def test_auto(self) -> None:
        """The kernelspec says that the kernel can encrypt."""
        self.check("auto", True)

    def test_required(self) -> None:
        """Encrypted."""
        self.check("required", True)

    def test_unix_sockets(self) -> None:
        """The transport ipc is encrypted, too."""
        with tempfile.TemporaryDirectory() as folder, Kernel("required", transport="ipc", ip=f"{folder}/k") as k:
            self.assertEqual((k.file["transport"], "curve_secretkey" in k.file), ("ipc", True))
            self.assertEqual(k.text("print(6 * 7)"), "42\n")
            for channel, kind in CHANNELS.items():
                endpoint = f"ipc://{folder}/k-{k.file[f'{channel}_port']}"
                self.assertTrue(refused(endpoint, kind, {}), channel)

    def test_another_key(self) -> None:
        """A client that knows the key of another kernel is refused on every channel, with one line in the log."""
        public, secret = zmq.curve_keypair()
        options = {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": public}
        with Kernel("required") as k:
            for channel, kind in CHANNELS.items():
                self.assertTrue(refused(k.endpoint(channel), kind, options), channel)
            lines = k.rejections(len(CHANNELS))
            self.assertEqual(len(lines), len(CHANNELS), lines)
            self.assertTrue(all("it does not have the public key" in line for line in lines), lines)

    def test_reverse(self) -> None:
        """A client with keys is refused by a kernel without, with one line in the log."""
        public, secret = zmq.curve_keypair()
        options = {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": public}
        with Kernel("disabled") as k:
            for channel, kind in CHANNELS.items():
                self.assertTrue(refused(k.endpoint(channel), kind, options), channel)
            lines = k.rejections(len(CHANNELS))
            self.assertEqual(len(lines), len(CHANNELS), lines)
            self.assertTrue(all("this socket has no keys" in line for line in lines), lines)

    def test_restart(self) -> None:
        """A restart keeps the keys, and the clients connected."""
        with Kernel("required") as k:
            before = k.file
            pid = k.text("import os; print(os.getpid())")
            k.km.restart_kernel()
            k.client.wait_for_ready(timeout=PATIENCE)
            self.assertNotEqual(k.text("import os; print(os.getpid())"), pid)
            self.assertEqual(k.file, before)
            self.assertEqual(stat.S_IMODE(os.stat(k.km.connection_file).st_mode), 0o600)
            self.assertEqual(k.text("print(1)"), "1\n")

    def test_sizes_and_clients(self) -> None:
        """Two clients get 10 MB and 1,000 messages, and 10 MB reach the kernel."""
        with Kernel("required") as k:
            other = k.connect()
            for code, want in (
                ("print('x' * 10_000_000)", "x" * 10_000_000 + "\n"),
                ("for i in range(1000): print(i, flush=True)", "".join(f"{i}\n" for i in range(1000))),
            ):
                request = k.client.execute(code)
                for client in (k.client, other):
                    self.assertEqual(printed(client, request), want)
            self.assertEqual(k.text(f"print(len({'y' * 10_000_000!r}))"), "10000000\n")
            for n in range(1000):
                other.execute(f"last = {n}", silent=True)
            k.client.wait_for_ready(timeout=PATIENCE)
            self.assertEqual(printed(other, other.execute("print(last)")), "999\n")

    def test_input(self) -> None:
        """The channel stdin."""
        with Kernel("required") as k:
            request = k.client.execute("print(input('name? '))", allow_stdin=True)
            self.assertEqual(k.client.get_stdin_msg(timeout=PATIENCE)["content"]["prompt"], "name? ")
            k.client.input("Ada")
            self.assertEqual(printed(k.client, request), "Ada\n")

    def test_keys_stay_secret(self) -> None:
        """No log, command line, environment or other file of the kernel's has a key."""
        with Kernel("required") as k:
            k.text("1")
            self.assertTrue(refused(k.endpoint("shell"), zmq.DEALER, {}))
            keys = [k.file[name] for name in ("curve_publickey", "curve_secretkey")]
            seen = {"the log": k.logged()}
            for process in descendants(k.km.provisioner.pid):
                command = (process / "cmdline").read_bytes()
                seen[f"{process} cmdline"] = command.decode()
                seen[f"{process} environ"] = (process / "environ").read_bytes().decode(errors="replace")
                for word in command.decode().split("\0"):
                    if word.endswith("connection.json"):  # of the child
                        seen[word] = pathlib.Path(word).read_text()
            self.assertTrue(
                [name for name in seen if name.endswith("connection.json")], "the child's file is not found"
            )
            for name, text in seen.items():
                self.assertFalse(any(key in text for key in keys), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
