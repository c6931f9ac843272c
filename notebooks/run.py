"""Execute a notebook headless with the kernel of one prefix, printing its outputs as they come to be.

usage: python run.py [--prefix DIR] [--output FILE] [--clean] NOTEBOOK...

The kernel is looked up below the prefix alone, never by chance on JUPYTER_PATH. Where NAME-more.ipynb is given with
NAME.ipynb, it runs while the cell of NAME that is tagged "beside" does. With --output the executed notebook
is written; --clean replaces what names this machine or its user: hosts, absolute paths, durations, the folder in HDFS.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import re
import socket
import sys
from collections.abc import Sequence
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def say(text: str) -> None:
    """Print at once: a person watches."""
    if not sys.stdout.isatty():  # a file or a pipe shows colours as noise
        text = COLOURS.sub("", text)
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

    def __init__(self, path: pathlib.Path, prefix: pathlib.Path, beside: Sequence[Runner] = ()) -> None:
        self.path = path
        self.notebook = nbformat.read(path, as_version=4)
        self.beside = beside
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

    def start(self, cell: Any, cell_index: int) -> None:
        """Show what is about to run, and run the notebooks beside it."""
        if cell.cell_type == "code":
            lines = cell.source.splitlines()
            say(f"\n── In [{cell_index}] " + "─" * 60)
            for line in lines[:12]:
                say("   " + line)
            if len(lines) > 12:
                say(f"   … {len(lines) - 12} more lines")
        if "beside" in cell.metadata.get("tags", ()):
            self.running = [asyncio.create_task(r.execute()) for r in self.beside]

    async def executed(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        """Show what came of it."""
        for output in cell.get("outputs", []):
            text = plain(output)
            if text.strip():
                say(text)
        if "beside" in cell.metadata.get("tags", ()):
            await asyncio.gather(*self.running)

    async def execute(self) -> None:
        """Execute every cell; an error ends it unless the cell is tagged raises-exception."""
        say(f"\n══ {self.path.name} " + "═" * 60)
        await self.client.async_execute(cleanup_kc=True)


def runners(paths: list[pathlib.Path], prefix: pathlib.Path) -> list[Runner]:
    """A runner for each notebook that is beside no other one."""
    paths = [path.resolve() for path in paths]
    beside = {p: [q for q in paths if q.parent == p.parent and q.stem.startswith(p.stem + "-")] for p in paths}
    others = {q for found in beside.values() for q in found}
    return [Runner(p, prefix, [Runner(q, prefix) for q in beside[p]]) for p in paths if p not in others]


def clean(notebook: Any, root: pathlib.Path) -> None:
    """Take out of the outputs what differs from machine to machine."""
    host = socket.gethostname()
    swaps = [
        (re.compile(re.escape(str(root))), "."),
        (re.compile(r"/[^\s:'\"]*/site-packages/"), "site-packages/"),
        # Up to two spaces behind it go, so that columns stay where they are.
        (re.compile(r"(?<![\w.-])" + re.escape(host) + r"(?![\w.-])( {2}(?= {2}))?"), "host"),
        (re.compile(r"(?<![\w.])127(\.\d+){3}(?![\w.])( {2,}(?= {2}))?"), "host"),  # a node of a cluster on one machine
        (re.compile(r"(?<= {2})host +(?= {2}\w)"), "host"),  # the column's title, which was as wide as the longest name
        (re.compile(r"(hdfs://[^/\s]+/user/)[^/\s<]+"), r"\1me"),
        (re.compile(r"\b\d\d:\d\d:\d\d\b"), "00:00:00"),
        (re.compile(r"\b\d\d/\d\d/\d\d(?= \d\d:\d\d:\d\d)"), "26/01/01"),
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
    for runner in runners(args.notebooks, args.prefix.resolve()):
        try:
            asyncio.run(runner.execute())
        except (CellExecutionError, DeadKernelError) as error:
            say(f"\n{runner.path.name} failed: {type(error).__name__}")
            if isinstance(error, CellExecutionError):
                say(str(error).splitlines()[-1])
            return 1
        for done in (runner, *runner.beside) if args.output else ():
            target = args.output / done.path.name if args.output.is_dir() else args.output
            if args.clean:
                clean(done.notebook, done.path.parent)
            nbformat.write(done.notebook, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
