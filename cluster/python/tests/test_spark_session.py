"""Spark's own files, as a session of the cluster's own takes them over."""

from __future__ import annotations

import pathlib
import types

import pytest

from tfcluster import spark_session


def test_defaults_are_read_as_java_reads_them(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key ends at a space, = or :, and an = in a value belongs to it."""
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n! another\n\n"
        "  spark.driver.extraJavaOptions   -Da=1 -XX:+UseSerialGC\n"
        "spark.b=c=d\nspark.c : e\nspark.d\tf g \n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert spark_session._defaults() == {
        "spark.driver.extraJavaOptions": "-Da=1 -XX:+UseSerialGC",
        "spark.b": "c=d",
        "spark.c": "e",
        "spark.d": "f g",
    }


def test_a_folder_called_conf_is_not_sparks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SPARK_HOME the settings are pyspark's, not those of a folder conf where the notebook is."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.a b\n")
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert "spark.a" not in spark_session._defaults()


@pytest.mark.parametrize("version", ["3.4.4", "3.5.8"])
def test_a_server_without_a_token_is_never_started(version: str) -> None:
    """The Spark Connect server of Spark 3 listens on every address and lets anybody in."""
    session = spark_session.Session(types.SimpleNamespace(version=version, sparkContext=None))  # touching it would fail
    with pytest.raises(RuntimeError, match=f"Spark {version} lets anybody in"):
        session.share()
