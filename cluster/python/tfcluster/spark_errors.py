"""The reason of an error of Spark, without the stacks of Python and Java."""

from __future__ import annotations

import re

# Spark's message that barrier stages are not supported with dynamic allocation.
_DYNAMIC = ("SPARK-24942", "BARRIER_STAGE_WITH_DYNAMIC_ALLOCATION", "dynamic resource allocation")


def words(e: BaseException) -> str:
    """Returns an error's reason in one line, without the stacks of Python and Java."""
    text = str(e) or type(e).__name__
    if any(mark in text for mark in _DYNAMIC):
        return (
            "this session allocates executors dynamically, so Spark removes those without jobs: "
            "set spark.dynamicAllocation.enabled=false explicitly where the session is made"
        )
    for pattern in (
        r"(?:RuntimeError|PythonException): (.+)",
        r"Caused by: [\w.$]+: (.+)",
        r"Job \d+ cancelled[^\n]*",
        r"Exception: (.+)",
        r"\n[\w.$]+(?:Exception|Error): (.+)",
    ):
        found = re.findall(pattern, text)
        if found:
            return str(found[-1]).strip()
    return text.strip().splitlines()[0]
