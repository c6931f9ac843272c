"""What a program takes along."""

from __future__ import annotations

import functools
import io
import linecache
import os
import pickle
import sys
import threading
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tfcluster import shipping
from tfcluster.errors import UsageError
from tfcluster.objects import Objects

BIG = 10 << 20


def names_of(archive: bytes) -> list[str]:
    if not archive:
        return []
    with zipfile.ZipFile(io.BytesIO(archive)) as z:
        return z.namelist()


def test_wrapped_functions(project: Path) -> None:
    """A wrapper takes along what the function that it wraps imports in its body."""

    def wrapped() -> None:
        import helper  # noqa: F401

    @functools.wraps(wrapped)
    def wrapper() -> None:
        wrapped()

    assert "helper.py" in names_of(shipping.modules_of_function(wrapper, str(project)))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with modules, some of which a program imports."""
    files = {
        "helper.py": "import deeper.part\nfrom deeper import other as o\n",
        "deeper/__init__.py": "",
        "deeper/part.py": "from . import sibling\nfrom .inner import thing\n",
        "deeper/other.py": "import os, json, numpy\n",
        "deeper/sibling.py": "import tfcluster\n",
        "deeper/inner/__init__.py": "thing = 1\n",
        "deeper/unused.py": "",
        "unused.py": "",
        "broken.py": "import helper\ndef (\n",
        "data.csv": "1,2\n",
        "lib/python3.11/site-packages/installed.py": "",
        "scripts/train.py": "import local_to_script, helper\nif __name__ == '__main__': import late\n",
        "scripts/local_to_script.py": "",
        "scripts/late.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


HELPER = [
    "deeper/__init__.py",
    "deeper/inner/__init__.py",
    "deeper/other.py",
    "deeper/part.py",
    "deeper/sibling.py",
    "helper.py",
]


def test_cell(project: Path) -> None:
    assert names_of(shipping.modules_of_source("import helper, sys, numpy", "", str(project))) == HELPER
    assert names_of(shipping.modules_of_source("import sys", "", str(project))) == []
    assert names_of(shipping.modules_of_source("import broken", "", str(project))) == ["broken.py"]
    assert names_of(shipping.modules_of_source("%magic\n(", "", str(project))) == []


def test_script(project: Path) -> None:
    archive = shipping.modules_of_source("", "scripts/train.py", str(project))
    assert names_of(archive) == sorted([*HELPER, "late.py", "local_to_script.py"])


def test_script_outside(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "train.py").write_text("import near\n")
    (elsewhere / "near.py").write_text("")
    assert names_of(shipping.modules_of_source("", str(elsewhere / "train.py"), str(project))) == ["near.py"]


def in_main(source: str, **more: Any) -> dict[str, Any]:
    """Names as a notebook's cell defines them."""
    names: dict[str, Any] = {"__name__": "__main__", **more}
    exec(source, names)
    return names


def test_function(project: Path) -> None:
    import helper

    names = in_main(
        "def inner():\n    import deeper.sibling\ndef main_fun(args, ctx):\n    return inner(), helper\n",
        helper=helper,
    )
    assert names_of(shipping.modules_of_function(names["main_fun"], str(project))) == HELPER


def test_submodule_of_a_package(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import deeper.part

    names = in_main("def main_fun(args, ctx):\n    return deeper.part.thing\n", deeper=deeper)
    assert "deeper/part.py" in names_of(shipping.modules_of_function(names["main_fun"], str(project)))


def test_archive_is_reproducible_and_fresh(project: Path) -> None:
    first = shipping.modules_of_source("import helper", "", str(project))
    assert shipping.modules_of_source("import helper", "", str(project)) == first
    (project / "helper.py").write_text("x = 2\n")
    assert names_of(shipping.modules_of_source("import helper", "", str(project))) == ["helper.py"]


def test_py_files(project: Path) -> None:
    packed = project / "packed.zip"
    with zipfile.ZipFile(packed, "w") as z:
        z.writestr("inzip.py", "")
    given = [str(project / "unused.py"), str(project / "deeper"), str(packed), str(project / "scripts")]
    found = names_of(shipping.modules_of_source("", "", str(project), given))
    assert {"unused.py", "deeper/unused.py", "inzip.py", "train.py"} <= set(found)


def test_sources_of_all_code_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {
        "/tmp/ipykernel_1/1.py": "class Model:\n    @property\n    def size(self): return helper()\nmodel = Model()\n",
        "/tmp/ipykernel_1/2.py": "def helper(): return 5\n",
        "/tmp/ipykernel_1/3.py": "def main_fun(args, ctx):\n    def step(): return model.size\n    return step()\n",
        "/tmp/ipykernel_1/4.py": "secret = 1\ndef unused(): return secret\n",
    }
    names: dict[str, Any] = {"__name__": "__main__"}
    for filename, text in cells.items():
        monkeypatch.setitem(linecache.cache, filename, (len(text), None, text.splitlines(keepends=True), filename))
        exec(compile(text, filename, "exec"), names)
    pickled, _ = shipping.pickle_program(names["main_fun"], "main_fun", 1 << 30, BIG)
    said = pickle.loads(pickled)
    assert said["function"]([], None) == 5
    del cells["/tmp/ipykernel_1/4.py"]
    assert said["sources"] == cells
    generated, _ = shipping.pickle_program(in_main("def f(): return 1\n")["f"], "f", 1 << 30, BIG)
    assert pickle.loads(generated)["sources"] == {}


def test_big_captures_are_named() -> None:
    names = in_main("def main_fun(args, ctx):\n    return len(data) + small\n", data=b"x" * (BIG + 1), small=1)
    pickled, big = shipping.pickle_program(names["main_fun"], "main_fun", 1 << 30, BIG)
    assert len(pickled) > BIG
    assert [name for name, _ in big] == ["data"]
    with pytest.raises(UsageError, match="load data in the program"):
        shipping.pickle_program(names["main_fun"], "main_fun", 1 << 20, BIG)


def test_offender_is_named() -> None:
    names = in_main(
        "def helper():\n    with lock: pass\ndef main_fun(args, ctx):\n    helper()\n", lock=threading.Lock()
    )
    with pytest.raises(UsageError) as e:
        shipping.pickle_program(names["main_fun"], "main_fun", 1 << 30, BIG)
    assert "uses the notebook's lock" in str(e.value)
    assert "\n" not in str(e.value)


def test_closures_and_classes() -> None:
    names = in_main(
        "def make(x):\n    def main_fun(a, c): return x\n    return main_fun\n"
        "class Model:\n    def go(self): return lock\n"
        "def uses(a, c): return Model()\n",
        lock=threading.Lock(),
    )
    assert shipping.captured(names["make"](b"held"))["x"] == b"held"
    assert "lock" in shipping.captured(names["uses"])


def test_cloudpickle_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(UsageError, match="pip install cloudpickle"):
        shipping.pickle_value(1, "args")


@pytest.mark.parametrize("error", [ValueError, KeyError])
def test_expand_names_the_cause(error: type[Exception]) -> None:
    class NoText:
        def __str__(self) -> str:
            raise error("no text")

    objects = Objects({"a": 1, "b": NoText()})
    with pytest.raises(UsageError, match=rf"^\$b: {error.__name__}: .*no text"):
        objects("expand", {"names": ["a", "b"]})


def test_objects() -> None:
    names = in_main("def main_fun(args, ctx): pass\n", x=1.5, d={"a": [1]}, text="globals")
    objects = Objects(names, {"text": "locals"}, {"given": 7})
    assert objects("expand", {"names": ["x", "text", "given", "nope"]}) == {
        "x": "1.5",
        "text": "locals",
        "given": "7",
        "nope": None,
    }
    for expr, want in {
        "x * 2": "3.0",
        "d['a'][0]": "1",
        "x:.3f": "1.500",
        "text!r": "'locals'",
        "text + '!'": "locals!",
        "','.join(text + str(i) for i in range(2))": "locals0,locals1",
        "eval('x +') if x < 0 else x": "1.5",
    }.items():
        assert objects("eval", {"expr": expr}) == want
    for wrong in ("1 +", "x:", "a b"):
        with pytest.raises((UsageError, NameError)):
            assert objects("eval", {"expr": wrong}) == "1.5"
            raise UsageError("an empty format is str()")
    with pytest.raises(NameError):
        objects("eval", {"expr": "nope"})
    with pytest.raises(SyntaxError):
        objects("eval", {"expr": "eval('1 +')"})  # the expression's own, not the line's
    assert objects("names", {}) == ["main_fun"]
    assert objects("cwd", {}) == os.getcwd()
    got = objects("program", {"name": "main_fun", "max_bytes": 1 << 20, "big": BIG})
    assert got.value["qualname"] == "main_fun" and got.contents["pickle"]
    for name, word in {"nope": "run the cell that defines it", "x": "not a function but a float"}.items():
        with pytest.raises(UsageError, match=word):
            objects("program", {"name": name, "max_bytes": 1, "big": 1})
    with pytest.raises(UsageError, match="which lacks .reboot."):
        objects("reboot", {})


def test_files_of_spark_submit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Modules and archives as Spark keeps them; no jars, which --packages adds."""
    (tmp_path / "a.py").write_text("")
    (tmp_path / "c.jar").write_text("")
    conf = {"spark.submit.pyFiles": f"file:///x/a.py,hdfs:///y/gone.zip,{tmp_path}/c.jar"}
    pyspark: Any = types.SimpleNamespace(
        SparkContext=types.SimpleNamespace(_active_spark_context=types.SimpleNamespace(_conf=conf)),
        SparkFiles=types.SimpleNamespace(get=lambda name: str(tmp_path / name)),
    )
    monkeypatch.setitem(sys.modules, "pyspark", pyspark)
    assert shipping.submitted_files() == [str(tmp_path / "a.py")]
    pyspark.SparkContext._active_spark_context = None
    assert shipping.submitted_files() == []


def test_modules_beside_a_script(tmp_path: Path) -> None:
    """A script's folder comes first, as in Python's own search; without a script only the working directory counts."""
    for folder in ("jobs", "cwd"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helper.py").write_text(f"where = {folder!r}\n")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def main_fun(args, ctx):\n    import helper\n    return helper.where\n", names)
    cwd, jobs = str(tmp_path / "cwd"), str(tmp_path / "jobs")
    alone = shipping.modules_of_function(names["main_fun"], cwd)
    assert alone == shipping.modules_of_function(names["main_fun"], cwd, (), cwd)
    assert alone != shipping.modules_of_function(names["main_fun"], cwd, (), jobs)
    assert shipping.modules_of_function(names["main_fun"], jobs) == shipping.modules_of_function(
        names["main_fun"], cwd, (), jobs
    )
