"""One notebook that uses every verb, on two executors of this machine: written here, executed elsewhere, checked here.

    python verb_notebook.py write NOTEBOOK [--kernel NAME] [--load-ext]
    python verb_notebook.py check NOTEBOOK [--rounds N]

The verbs are those that the command table lists in the notebook itself (%tfcluster help): one without a cell fails the
check.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

import nbformat

ROUNDS = 2  # the default of the notebook's parameter
PROGRAM = """import numpy as np
records = np.arange(1_000)

def main_fun(args, ctx):
    import sys
    feed, seen = ctx.get_data_feed(), 0
    while not feed.should_stop():
        batch = feed.next_batch(50)
        if ctx.mode == "inference":
            feed.batch_results([2 * record for record in batch])
        seen += len(batch)
        ctx.report(step=seen, half=0.5)
    print(f"{ctx.mode} of {args}", file=sys.stderr)
    return seen

def forever(args, ctx):
    import sys, time
    print("round and round", file=sys.stderr)
    while True:
        time.sleep(0.05)"""


@dataclasses.dataclass(frozen=True)
class Case:
    """One cell, and what a reader sees of it; ROUNDS in a pattern stands for the parameter's value."""

    source: str
    shows: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()  # what was shown for a moment, and was replaced in place


def verbs_of(source: str) -> set[str]:
    """The verbs that a cell uses."""
    return set(re.findall(r"^(?:\w+ = )?%%?tfcluster (\w+)", source, re.MULTILINE))


RUNNING = (r"· running ·", r"· starting ·")  # of a run's view that has ended
CASES = [
    Case("%tfcluster help", (r"^  reserve +\S",)),
    Case("%tfcluster version", (r"this program: tfcluster \d",)),
    Case("%tfcluster trust --revoke", (r"tfcluster\.toml is not trusted",)),
    Case("%tfcluster doctor", (r"ipykernel +\d", r"cloudpickle +\d")),
    Case(
        "%tfcluster reserve --backend local --workers 2 --no-zygote --framework none --name verbs --idle 5m",
        (r"cluster verbs: 2 executors = 2 workers, ready in", r"worker:1 .*ready"),
        (r"missing worker:",),
    ),
    Case("%tfcluster gpus", (r"GPU",)),
    Case(PROGRAM),
    Case("%tfcluster start main_fun {rounds} $rounds '$rounds'", (r"run 1 · main_fun · entered on 2 tasks",)),
    Case(
        "run = %tfcluster train records --epochs {rounds}\nprint('fed', sum(run.results.values()))",
        (
            r"^fed ROUNDS000$",
            r"run 1 · main_fun · finished",
            r"\[worker:0\] train of \['ROUNDS', 'ROUNDS', '\$rounds'\]",
            r"\[worker:1\] train of",
            r"fed ROUNDS,000 of ROUNDS,000 records · epoch ROUNDS of ROUNDS",
        ),
        RUNNING,
    ),
    Case("%tfcluster start main_fun"),
    Case(
        "metrics = %tfcluster evaluate records\nprint(metrics)",
        (r"^\{'half': 0\.5\}$", r"\[worker:1\] evaluate of \[\]", r"run 2 · main_fun · finished"),
        RUNNING,
    ),
    Case("%tfcluster start main_fun"),
    Case(
        "out = %tfcluster inference records\nprint(type(out).__name__, bool((out == 2 * records).all()))",
        (r"^ndarray True$", r"\[worker:1\] inference of \[\]", r"run 3 · main_fun · finished"),
        RUNNING,
    ),
    Case(
        "%%tfcluster start\nimport sys, tfcluster\nctx = tfcluster.context()\nfor step in range(20):\n"
        "    ctx.report(step=step, loss=1 / (1 + step))\nprint('alone', ctx.task_index, file=sys.stderr)",
        (r"run 4 · Cell In\[\d+\] · entered on 2 tasks",),
    ),
    Case(
        "%tfcluster wait",
        (r"run 4 · Cell In\[\d+\] · finished", r"\[worker:0\] alone 0", r"\[worker:1\] alone 1", r"loss 0\.05"),
        RUNNING,
    ),
    Case("%tfcluster logs --task worker:1", (r"\[worker:1\] alone 1",), (r"worker:0",)),
    Case("%tfcluster tensorboard", (r"TensorBoard of cluster verbs",)),
    Case("%tfcluster start forever", (r"run 5 · forever · entered on 2 tasks",)),
    Case("%tfcluster status", (r"run 5 · forever · running", r"worker:1 +running")),
    # On a busy machine a task may still be at another line of forever than its loop.
    Case("%tfcluster stacks", (r"run 5 · stacks of 2 tasks", r"Cell In\[\d+\]:\d+ +forever +\S")),
    Case("%tfcluster why", (r"task +state +doing", r"worker:1 +running")),
    Case("%tfcluster detach", (r"run 5 continues after this kernel shuts down",)),
    Case("%tfcluster attach verbs", (r"attached to cluster verbs: run 5",)),
    Case("%tfcluster stop", (r"stopped",)),
    Case("%tfcluster reset", (r"cluster verbs: reset in .*, 2 executors ready",)),
    Case("%tfcluster history", (r"1  main_fun .*finished", r"5  forever .*stopped")),
    Case("%tfcluster shutdown", (r"cluster verbs released in",)),
]


def write(path: pathlib.Path, kernel: str = "tfcluster", load_ext: bool = False) -> None:
    """Write the notebook; its second cell, or with load_ext its third, has papermill's parameters."""
    sources = [case.source for case in CASES]
    if load_ext:
        sources.insert(0, "%load_ext tfcluster")
    cells = [nbformat.v4.new_markdown_cell("Every verb of `%tfcluster`."), *map(nbformat.v4.new_code_cell, sources)]
    parameters = nbformat.v4.new_code_cell(f"rounds = {ROUNDS}", metadata={"tags": ["parameters"]})
    cells.insert(1, parameters)
    spec = {"name": kernel, "display_name": kernel, "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)


def shown(cell: Any) -> str:
    """What a reader sees of an executed cell, as text."""
    texts = []
    for output in cell.get("outputs", []):
        texts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
        texts += output.get("traceback", [])
    return "\n".join(texts)


def verbs_in_help(text: str) -> set[str]:
    """The verbs that the command table lists."""
    return set(re.findall(r"^  (\w+) +\S", text, re.MULTILINE))


def problems(path: pathlib.Path, rounds: int = ROUNDS) -> list[str]:
    """What an executed notebook lacks: verbs without a cell, and cells that do not show what they must."""
    # Of cells with the same source the last one is looked at.
    cells = {cell.source: cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"}
    listed = verbs_in_help(shown(cells[CASES[0].source]))
    used = set().union(*(verbs_of(source) for source in cells))
    found = [f"the verb {verb} has no cell in {pathlib.Path(__file__).name}" for verb in sorted(listed - used)]
    if len(listed) < 2:
        found.append("%tfcluster help lists no verbs")
    for case in CASES:
        text = shown(cells[case.source])
        wants = [pattern.replace("ROUNDS", str(rounds)) for pattern in case.shows]
        wrong = [f"lacks {p}" for p in wants if not re.search(p, text, re.MULTILINE)]
        wrong += [f"still shows {p}" for p in case.hides if re.search(p, text, re.MULTILINE)]
        found += [f"{case.source}\n{problem}; it shows:\n{text}" for problem in wrong]
    return found


def main(words: Sequence[str]) -> int:
    """Write or check a notebook."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("notebook", type=pathlib.Path)
    parser.add_argument("--kernel", default="tfcluster")
    parser.add_argument("--load-ext", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(words)
    if given.action == "write":
        write(given.notebook, given.kernel, given.load_ext)
        return 0
    found = problems(given.notebook, given.rounds)
    print("\n\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
