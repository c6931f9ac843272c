"""Execute a notebook headless with the kernel of one prefix, printing its outputs as they come to be.

usage: python run.py [--prefix DIR] [--output FILE] [--clean] NOTEBOOK...

The kernel is looked up below the prefix alone, never by chance on JUPYTER_PATH. With --output the executed notebook
is written; --clean takes out of it what names this machine: host names, absolute paths, durations.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import re
import socket
import sys
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError


def say(text: str) -> None:
    """Print at once: a person watches."""
    print(text.rstrip("\n"), flush=True)


def plain(output: dict[str, Any]) -> str:
    """Return an output's plain text."""
    kind = output["output_type"]
    if kind == "stream":
        return output["text"]
    if kind == "error":
        return "\n".join(output["traceback"])
    return output.get("data", {}).get("text/plain", "")


class Runner:
    """One notebook's execution."""

    def __init__(self, path: pathlib.Path, prefix: pathlib.Path) -> None:
        self.notebook = nbformat.read(path, as_version=4)
        specs = KernelSpecManager(
            kernel_dirs=[str(prefix / "share" / "jupyter" / "kernels")], ensure_native_kernel=False
        )
        name = self.notebook.metadata.kernelspec.name
        manager = AsyncKernelManager(kernel_name=name, kernel_spec_manager=specs)
        self.client = NotebookClient(
            self.notebook,
            km=manager,
            timeout=900,
            resources={"metadata": {"path": str(path.parent)}},
            on_cell_start=self.start,
            on_cell_executed=self.executed,
        )

    @staticmethod
    def start(cell: Any, cell_index: int) -> None:
        """Show what is about to run."""
        if cell.cell_type == "code":
            lines = cell.source.splitlines()
            say(f"\n── In [{cell_index}] " + "─" * 60)
            for line in lines[:12]:
                say("   " + line)
            if len(lines) > 12:
                say(f"   … {len(lines) - 12} more lines")

    @staticmethod
    def executed(cell: Any, cell_index: int, execute_reply: Any) -> None:
        """Show what came of it."""
        for output in cell.get("outputs", []):
            text = plain(output)
            if text.strip():
                say(text)

    def run(self) -> None:
        """Execute every cell; an error ends it unless the cell is tagged raises-exception."""
        asyncio.run(self.client.async_execute(cleanup_kc=True))


def clean(notebook: Any, root: pathlib.Path) -> None:
    """Take out of the outputs what differs from machine to machine."""
    host = socket.gethostname()
    swaps = [
        (re.compile(re.escape(str(root))), "."),
        # Up to two spaces behind it go, so that columns stay where they are.
        (re.compile(r"(?<![\w.-])" + re.escape(host) + r"(?![\w.-])( {2}(?= {2}))?"), "host"),
        (re.compile(r"\b\d\d:\d\d:\d\d\b"), "00:00:00"),
        (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?\b"), "2026-01-01 00:00:00"),
    ]

    def scrub(value: Any) -> Any:
        if isinstance(value, str):
            for pattern, text in swaps:
                value = pattern.sub(text, value)
            return value
        if isinstance(value, list):
            return [scrub(v) for v in value]
        if isinstance(value, dict):
            return {k: scrub(v) for k, v in value.items()}
        return value

    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [nbformat.from_dict(scrub(dict(o))) for o in cell.outputs]


def main() -> int:
    """Execute each notebook in turn; the exit code is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="+", type=pathlib.Path)
    parser.add_argument("--prefix", type=pathlib.Path, default=pathlib.Path(sys.prefix))
    parser.add_argument("--output", type=pathlib.Path, help="a file, or a folder for several notebooks")
    parser.add_argument("--clean", action="store_true")
    args = parser.parse_args()
    for path in args.notebooks:
        say(f"\n══ {path.name} " + "═" * 60)
        runner = Runner(path.resolve(), args.prefix.resolve())
        try:
            runner.run()
        except (CellExecutionError, DeadKernelError) as error:
            say(f"\n{path.name} failed: {type(error).__name__}")
            if isinstance(error, CellExecutionError):
                say(str(error).splitlines()[-1])
            return 1
        if args.output:
            target = args.output / path.name if args.output.is_dir() else args.output
            if args.clean:
                clean(runner.notebook, path.resolve().parent)
            nbformat.write(runner.notebook, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
