"""Bars of the design, each measured beside its reference in one run, turn about.

    python e2e/bench/bench.py --prefix PREFIX [--rows 1,3,spark] [--quick] [--pairs N] [--json FILE]

PREFIX is where the kernel tfcluster is installed. Rows are named as the design numbers them; curve is a kernel with
encrypted channels beside one without, spark is row 4 on a standalone Spark, stop the stop of a fit, yarn row 7 on a
Hadoop of its own, scale a driver with thousands of simulated agents, attach to a cluster with 5 GB of lines, feed the
rates of train DATA, collective all-reduce between tasks, optimizer a step with DistributedOptimizer, install pip
install and the first line of a task, sampling what an agent's samples cost it, stacks how long they take and what they
cost the program, rdma the round trip of a message by each transport of collective calls, hosts a restart without a
host that vanished.
Nothing is asserted: a figure depends on the machine. The exit code is 0 when every row asked for was
measured, whether or not its bar holds, or skipped for want of what it needs.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time

import rows_attach
import rows_cluster
import rows_collective
import rows_encryption
import rows_feed
import rows_hosts
import rows_install
import rows_kernel
import rows_panel
import rows_rdma
import rows_sampling
import rows_scale
import rows_spark
import rows_stacks
import rows_steps
import rows_why
import rows_yarn
from measure import Figure, Options, load, machine, table
from workplace import BenchError, Missing, Workplace

ROWS = {
    "1": rows_kernel.overhead,
    "curve": rows_encryption.encryption,
    "2": rows_kernel.flood,
    "3": rows_cluster.again,
    "4": rows_cluster.cold,
    "spark": rows_spark.cold,
    "5": rows_cluster.killed,
    "stop": rows_cluster.stopped,
    "6": rows_steps.steps,
    "yarn": rows_yarn.submit,
    "scale": rows_scale.scale,
    "attach": rows_attach.attach,
    "feed": rows_feed.feed,
    "collective": rows_collective.collective,
    "optimizer": rows_collective.optimizer,
    "install": rows_install.install,
    "sampling": rows_sampling.sampling,
    "panel": rows_panel.panel,
    "stacks": rows_stacks.stacks,
    "why": rows_why.why,
    "rdma": rows_rdma.rdma,
    "hosts": rows_hosts.hosts,
}


def names(text: str) -> list[str]:
    """The rows of --rows."""
    chosen = text.split(",")
    if unknown := [row for row in chosen if row not in ROWS]:
        raise argparse.ArgumentTypeError(f"no row {unknown[0]}; there are {', '.join(ROWS)}")
    return chosen


def main() -> int:
    """Measure, print, and write the samples if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=pathlib.Path, required=True, help="where the kernel is installed")
    parser.add_argument("--rows", type=names, default=list(ROWS), help="rows; default all")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--pairs", type=int, default=20, help="alternating pairs of row 6; default 20")
    parser.add_argument("--json", type=pathlib.Path, help="write facts, figures and samples here")
    given = parser.parse_args()
    if given.pairs < 2:
        parser.error("--pairs: an interval needs 2 or more")
    options = Options(given.quick, given.pairs, lambda text: print(f"  {text}", file=sys.stderr, flush=True))
    facts = machine()
    if given.quick:
        facts.append("--quick: fewer repetitions than the bars ask for")
    print("\n".join(facts), flush=True)
    figures, missing, skipped = measure(given.prefix.absolute(), given.rows, options)
    facts.append(f"load average after the last row: {load()}")
    print(f"{facts[-1]}\n\n{table(figures)}" if figures else facts[-1])
    for row, why in missing.items():
        print(f"row {row} was not measured: {why}")
    for row, why in skipped.items():
        print(f"row {row} was skipped: {why}")
    if given.json:
        content = {"facts": facts, "figures": [figure.as_json() for figure in figures]}
        given.json.write_text(json.dumps({**content, "missing": missing, "skipped": skipped}, indent=1) + "\n")
    return 1 if missing else 0


def measure(
    prefix: pathlib.Path, rows: list[str], options: Options
) -> tuple[list[Figure], dict[str, str], dict[str, str]]:
    """The figures, and the reasons of rows that failed or were skipped. Each row has a folder of its own."""
    figures: list[Figure] = []
    missing: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for row in rows:
        print(f"row {row}: load average {load()}", flush=True)
        began = time.monotonic()
        try:
            place = Workplace(prefix)
        except BenchError as e:
            missing[row] = str(e)
            continue
        try:
            figures += ROWS[row](place, options)
        except Missing as e:
            skipped[row] = str(e)
        except Exception as e:  # the other rows are still worth having
            missing[row] = f"{type(e).__name__}: {e}"
        finally:
            left = place.close()
            if left:
                print(f"  left running and killed: {left}", flush=True)
        print(f"  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return figures, missing, skipped


if __name__ == "__main__":
    sys.exit(main())
