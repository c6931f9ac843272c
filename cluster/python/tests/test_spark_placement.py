"""On which hosts Spark starts agents."""

from __future__ import annotations

import pytest

from tfcluster import spark_placement


@pytest.mark.parametrize(
    ("n", "free", "placed", "pack", "hosts"),
    [
        (2, {"a": 2, "b": 2}, {}, False, ["a", "b"]),
        (4, {"a": 2, "b": 2}, {}, False, ["a", "b", "a", "b"]),
        (3, {"a": 1, "b": 2}, {}, False, ["b", "a", "b"]),
        (1, {"a": 1, "b": 1}, {"a": 1}, False, ["b"]),
        (1, {"a": 0, "b": 0}, {"a": 1, "b": 1}, False, [""]),
        (2, {}, {}, False, ["", ""]),
        (2, {"a": 1, "b": 2}, {}, True, ["b", "b"]),
        (1, {"a": 2, "b": 1}, {"b": 1}, True, ["b"]),
        (3, {"a": 2, "b": 2}, {}, True, ["a", "a", "b"]),
    ],
)
def test_prefer(n: int, free: dict[str, int], placed: dict[str, int], pack: bool, hosts: list[str]) -> None:
    """Agents spread over the hosts with free slots, or share the fewest."""
    assert spark_placement.prefer(n, free, placed, pack) == hosts
