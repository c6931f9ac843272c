"""Notebook features that the protocol suite does not cover, driven through jupyter_client against $KERNEL.

Each test must pass on plain ipykernel and on this kernel.
"""

import os
import queue
import time
import unittest
from typing import Any

import starting
from jupyter_client.session import Session

NAME = os.environ.get("KERNEL", "python3")
PATIENCE = 30


class Features(unittest.TestCase):
    """Tests on one shared kernel."""

    @classmethod
    def setUpClass(cls) -> None:
        """Start the kernel."""
        cls.km, cls.kc = starting.start(kernel_name=NAME, startup_timeout=60)

    @classmethod
    def tearDownClass(cls) -> None:
        """End the kernel."""
        cls.kc.stop_channels()
        cls.km.shutdown_kernel()

    def outputs(self, msg_id: str) -> list[dict[str, Any]]:
        """Return the IOPub messages up to the idle of a request."""
        got = []
        while True:
            m = self.kc.get_iopub_msg(timeout=PATIENCE)
            if m["parent_header"].get("msg_id") != msg_id:
                continue
            if m["msg_type"] == "status" and m["content"]["execution_state"] == "idle":
                return got
            got.append(m)

    def reply(self, msg_id: str) -> dict[str, Any]:
        """Return the reply to a request."""
        while True:
            m = self.kc.get_shell_msg(timeout=PATIENCE)
            if m["parent_header"].get("msg_id") == msg_id:
                return m

    def run_cell(self, code: str, **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Run a cell and wait for its end."""
        msg_id = self.kc.execute(code, **options)
        return self.reply(msg_id)["content"], self.outputs(msg_id)

    def text(self, code: str) -> str:
        """Run a cell and return its output."""
        reply, out = self.run_cell(code)
        self.assertEqual(reply["status"], "ok", reply)
        return "".join(m["content"]["text"] for m in out if m["msg_type"] == "stream")

    def control(self, msg_type: str, content: dict[str, Any]) -> dict[str, Any]:
        """Send a request on control and return the reply."""
        m = self.kc.session.msg(msg_type, content)
        self.kc.control_channel.send(m)
        while True:
            r = self.kc.control_channel.get_msg(timeout=PATIENCE)
            if r["parent_header"].get("msg_id") == m["header"]["msg_id"]:
                return r["content"]

    def test_widget(self) -> None:
        """A slider's comm works in both directions."""
        try:
            import ipywidgets  # noqa: F401
        except ImportError:
            self.skipTest("no ipywidgets")
        _, out = self.run_cell("import ipywidgets; s = ipywidgets.IntSlider(5); display(s)")
        opens = [m["content"] for m in out if m["msg_type"] == "comm_open"]
        slider = next(c for c in opens if c["data"]["state"].get("_model_name") == "IntSliderModel")
        data = {"method": "update", "state": {"value": 42}, "buffer_paths": []}
        m = self.kc.session.msg("comm_msg", {"comm_id": slider["comm_id"], "data": data})
        self.kc.shell_channel.send(m)
        self.outputs(m["header"]["msg_id"])
        self.assertEqual(self.text("print(s.value)"), "42\n")

    def test_binary_buffers(self) -> None:
        """Buffers of megabytes are transferred."""
        code = "from ipykernel.comm import Comm; Comm(target_name='t').send({}, buffers=[b'\\x00' * 3_000_000])"
        _, out = self.run_cell(code)
        self.assertEqual([len(b) for m in out if m["msg_type"] == "comm_msg" for b in m["buffers"]], [3_000_000])

    def test_big_messages(self) -> None:
        """Tens of megabytes are transferred in both directions."""
        _, out = self.run_cell("display({'text/plain': 'x' * 30_000_000}, raw=True)")
        shown = [m for m in out if m["msg_type"] == "display_data"]
        self.assertEqual(len(shown[0]["content"]["data"]["text/plain"]), 30_000_000)
        self.assertEqual(self.text("y = '%s'\nprint(len(y))" % ("z" * 12_000_000)), "12000000\n")

    def test_many_lines(self) -> None:
        """A flood of lines loses none, and its idle arrives."""
        self.assertEqual(self.text("for i in range(50_000): print('line', i)").count("\n"), 50_000)

    def test_input(self) -> None:
        """Input is requested and answered."""
        msg_id = self.kc.execute("print(input('name? '))", allow_stdin=True)
        self.assertEqual(self.kc.get_stdin_msg(timeout=PATIENCE)["content"]["prompt"], "name? ")
        self.kc.input("Ada")
        out = self.outputs(msg_id)
        self.assertIn("Ada\n", "".join(m["content"]["text"] for m in out if m["msg_type"] == "stream"))
        self.reply(msg_id)

    def test_abort(self) -> None:
        """Cells queued after an error are aborted, later cells are not."""
        ids = [self.kc.execute(c) for c in ("import time; time.sleep(.3); 1/0", "1", "2")]
        self.assertEqual([self.reply(i)["content"]["status"] for i in ids], ["error", "aborted", "aborted"])
        self.outputs(ids[-1])
        self.assertEqual(self.text("print('on')"), "on\n")

    def test_interrupt(self) -> None:
        """A sleeping cell is interrupted; an interrupt of an idle kernel has no effect."""
        msg_id = self.kc.execute("print('up', flush=True)\nimport time; time.sleep(60)")
        while self.kc.get_iopub_msg(timeout=PATIENCE)["msg_type"] != "stream":
            pass
        self.km.interrupt_kernel()
        self.assertEqual(self.reply(msg_id)["content"]["ename"], "KeyboardInterrupt")
        self.outputs(msg_id)
        self.km.interrupt_kernel()
        time.sleep(0.3)  # on a busy machine a signal may overtake a message
        self.assertEqual(self.text("print('alive')"), "alive\n")

    def test_debugger(self) -> None:
        """A breakpoint stops a cell, which then continues."""
        seq = iter(range(1, 100))

        def debug(command: str, **arguments: Any) -> dict[str, Any]:
            message = {"type": "request", "seq": next(seq), "command": command, "arguments": arguments}
            return self.control("debug_request", message)

        self.assertTrue(debug("initialize", clientID="t", adapterID="python", pathFormat="path")["success"])
        debug("attach")
        source = "a = 1\nb = 2\nprint(a + b)"
        path = debug("dumpCell", code=source)["body"]["sourcePath"]
        debug("setBreakpoints", breakpoints=[{"line": 2}], source={"path": path}, sourceModified=False)
        debug("configurationDone")
        msg_id = self.kc.execute(source)
        stopped = None
        while stopped is None:
            m = self.kc.get_iopub_msg(timeout=PATIENCE)
            if m["msg_type"] == "debug_event" and m["content"]["event"] == "stopped":
                stopped = m["content"]["body"]["threadId"]
        debug("continue", threadId=stopped)
        streams = [m["content"]["text"] for m in self.outputs(msg_id) if m["msg_type"] == "stream"]
        self.assertIn("3\n", "".join(streams))  # ipykernel may split a line
        self.reply(msg_id)
        debug("disconnect", restart=False, terminateDebuggee=False)

    def test_second_client(self) -> None:
        """A second client gets only its replies; one that reconnects gets each once."""
        other = self.km.client(session=Session(key=self.km.session.key))
        other.start_channels()
        other.wait_for_ready(timeout=PATIENCE)
        msg_id = other.execute("'two'")
        self.assertEqual(other.get_shell_msg(timeout=PATIENCE)["parent_header"]["msg_id"], msg_id)
        other.stop_channels()
        again = self.km.client(session=Session(key=self.km.session.key, session=other.session.session))
        again.start_channels()
        again.wait_for_ready(timeout=PATIENCE)
        msg_id = again.execute("'three'")
        self.assertEqual(again.get_shell_msg(timeout=PATIENCE)["parent_header"]["msg_id"], msg_id)
        with self.assertRaises(queue.Empty):
            again.get_shell_msg(timeout=0.3)
        again.stop_channels()

    def test_heartbeat(self) -> None:
        """Heartbeats are answered while a cell runs."""
        msg_id = self.kc.execute("import time; time.sleep(1)")
        time.sleep(0.3)
        self.assertTrue(self.kc.hb_channel.is_beating())
        self.outputs(msg_id)
        self.reply(msg_id)

    def test_zz_restart(self) -> None:
        """Restart starts a new kernel and leaves no process of the old one."""
        self.run_cell("x = 1")
        old = int(self.text("import os; print(os.getpid())"))
        self.km.restart_kernel()
        self.kc.wait_for_ready(timeout=PATIENCE)
        self.assertEqual(self.text("print('x' in globals())"), "False\n")
        end = time.monotonic() + PATIENCE
        while os.path.exists(f"/proc/{old}") and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse(os.path.exists(f"/proc/{old}"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
