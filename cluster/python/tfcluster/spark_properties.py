"""Spark's properties files: values as Java reads them, and the defaults of spark-defaults.conf."""

from __future__ import annotations

import contextlib
import os
import re


def escape(value: str) -> str:
    """Returns a value as written in a Java properties file."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    return "".join(c if 32 <= ord(c) < 127 else "".join(f"\\u{u:04x}" for u in _utf16(c)) for c in text)


def _utf16(c: str) -> list[int]:
    raw = c.encode("utf-16-be")
    return [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]


def defaults() -> dict[str, str]:
    """Returns spark-defaults.conf's settings, which Spark ignores with another file. Values stay escaped."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME") or _home(), "conf")
    found: dict[str, str] = {}
    with contextlib.suppress(OSError), open(os.path.join(folder, "spark-defaults.conf"), encoding="utf-8") as f:
        for line in f:
            setting = re.match(r"\s*([^\s#!=:][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*)", line)
            if setting:
                found[setting[1]] = setting[2].strip()
    return found


def _home() -> str:
    """Returns pyspark's folder, the default of SPARK_HOME."""
    import pyspark

    return os.path.dirname(pyspark.__file__)
