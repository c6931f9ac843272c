"""What a task records of what it runs with."""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from test_runner import Ran, pickled, run

from tfcluster import manifest


def recorded(ran: Ran) -> dict:
    """All parts together, as the driver merges them."""
    whole: dict = {}
    for part in (m["manifest"] for m in ran.messages if m["op"] == "manifest"):
        for name, value in part.items():
            whole[name] = {**whole.get(name, {}), **value} if isinstance(value, dict) else value
    return whole


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


CHIEF = {"job_name": "worker", "task_index": 0, "cluster_spec": {"worker": ["a:1", "b:2"]}}
OTHER = {**CHIEF, "task_index": 1}


def test_script(tmp_path: Path) -> None:
    source = "import json\ntry:\n    import not_there\nexcept ImportError:\n    pass\n"
    (tmp_path / "train.py").write_text(source)
    ran = run(tmp_path, source, kind="script", name="train.py", path="train.py", context=CHIEF)
    assert ran.code == 0, ran.stderr
    said = recorded(ran)
    assert said["code"] == {"train.py": digest(source)}
    assert said["sources"] == {"train.py": source}
    assert said["absent"] == ["not_there"]
    assert said["versions"]["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert said["python"] == sys.executable
    ops = [m["op"] for m in ran.messages]
    assert ops.index("manifest") < ops.index("entered"), "it is known before the program is entered"
    other = recorded(run(tmp_path, source, kind="script", name="train.py", path="train.py", context=OTHER))
    assert "sources" not in other and other["code"] == said["code"]


def test_function(tmp_path: Path) -> None:
    body = """
        LR = 0.1
        DATA = object()

        def step(n):
            return n * LR

        def main_fun(args, ctx):
            DATA
            return step(args.epochs)
    """
    program = textwrap.dedent(body)
    (tmp_path / "nb.py").write_text(program)
    make = f"""
        import linecache, sys
        from tfcluster import shipping
        source = open({str(tmp_path / "nb.py")!r}).read()
        linecache.cache["Cell In[3]"] = (len(source), None, source.splitlines(keepends=True), "Cell In[3]")
        names = {{"__name__": "__main__"}}
        exec(compile(source, "Cell In[3]", "exec"), names)
        sys.stdout.buffer.write(shipping.pickle_program(names["main_fun"], "main_fun", 1 << 20, 1 << 20)[0])
    """
    made = subprocess.run([sys.executable, "-c", textwrap.dedent(make)], stdout=subprocess.PIPE, check=True)
    (tmp_path / "args").write_bytes(
        pickled("import argparse\nmain_fun = argparse.Namespace(epochs=2, name='x', big=range(3))")
    )
    ran = run(tmp_path, made.stdout, kind="function", name="main_fun", args=str(tmp_path / "args"), context=CHIEF)
    assert ran.code == 0, ran.stderr
    said = recorded(ran)
    main_fun = "def main_fun(args, ctx):\n    DATA\n    return step(args.epochs)\n"
    assert said["sources"] == {"main_fun": main_fun + "\n\ndef step(n):\n    return n * LR\n"}
    assert said["code"] == {"main_fun": digest(said["sources"]["main_fun"])}
    assert said["values"] == {"LR": "0.1"}
    assert said["arguments"] == {"epochs": "2", "name": "'x'", "big": "<range>"}


def test_modules_seeds_and_data(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as z:
        z.writestr("model.py", "A = 1\n")
        z.writestr("pkg/__init__.py", "")
    (tmp_path / "beside.py").write_text("B = 2\n")
    (tmp_path / "data.txt").write_text("12345")
    source = f"""
        import model, beside, tfcluster
        tfcluster.context().local_copy({str(tmp_path / "data.txt")!r}, shard=False)
    """
    spec = {
        "modules": str(tmp_path / "modules.zip"),
        "modules_dir": str(tmp_path / "unpacked"),
        "kind": "script",
        "path": str(tmp_path / "train.py"),
    }
    ran = run(tmp_path, source, name="train.py", context={**CHIEF, "copy_dir": str(tmp_path / "copies")}, **spec)
    assert ran.code == 0, ran.stderr
    said = recorded(ran)
    assert {name: said["code"].get(name) for name in ("model.py", "beside.py", "pkg/__init__.py")} == {
        "model.py": digest("A = 1\n"),
        "beside.py": digest("B = 2\n"),
        "pkg/__init__.py": digest(""),
    }
    use = said["data"][str(tmp_path / "data.txt")]
    assert (use["by"], use["files"], use["bytes"]) == ("local_copy", 1, 5) and len(use["version"]) == 12


def test_a_failed_program_leaves_its_manifest(tmp_path: Path) -> None:
    ran = run(tmp_path, "import sqlite3\nraise ValueError('x')")
    assert ran.code == 1 and recorded(ran)["code"]


def packages(folders: dict[str, Path], source: str) -> dict:
    """The part that a new interpreter with these folders first on its path makes."""
    program = """
        import json, sys
        from tfcluster.manifest import Manifest
        class Channel:
            def send(self, op, manifest): print(json.dumps(manifest))
        made = Manifest(Channel(), keeps_sources=False)
        made.source("cell", sys.argv[1])
        made.start()
    """
    path = os.pathsep.join([*(str(f) for f in folders.values()), os.environ["PYTHONPATH"]])
    command = [sys.executable, "-c", textwrap.dedent(program), source]
    out = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True, text=True, cwd="/"
    )
    return json.loads(out.stdout)


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    folder = tmp_path / "stubs"
    for name, version in {"numpy": "1.26.4", "stub_package": "0.3", "yaml": ""}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
        if version:
            (folder / f"{name}-{version}.dist-info").mkdir()
    (folder / "single.py").write_text("")
    (folder / "Single-1.0-py3.11.egg-info").mkdir()
    return folder


def test_the_version_is_that_of_the_package_that_is_imported(stub: Path) -> None:
    """Not that of another one of this name later on the path."""
    said = packages(
        {"stubs": stub}, "import numpy as np, single\nfrom stub_package import x\nimport yaml\nimport gone\n"
    )
    assert {
        n: v for n, v in said["packages"].items() if n in ("numpy", "stub_package", "single", "yaml", "pyyaml")
    } == {
        "numpy": "1.26.4",
        "stub_package": "0.3",
        "single": "1.0",
    }
    assert said["absent"] == ["gone"]


def test_what_was_imported_before_a_fork_is_kept(stub: Path) -> None:
    """And what was imported since is added."""
    program = """
        import json, sys
        from tfcluster import manifest
        import numpy
        manifest.warm()
        import stub_package
        sys.path.insert(0, "/nothing")
        found = manifest.Folders(manifest._warm)
        print(json.dumps([found.packages(["single", "gone"]), manifest.Folders().packages(["single", "gone"])]))
    """
    path = os.pathsep.join([str(stub), os.environ["PYTHONPATH"]])
    command = [sys.executable, "-c", textwrap.dedent(program)]
    out = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True, text=True)
    after, anew = json.loads(out.stdout)
    assert after == anew
    assert {"numpy": "1.26.4", "stub_package": "0.3", "single": "1.0"}.items() <= after[0].items()
    assert after[1] == ["gone"]


def test_imports_of_a_text() -> None:
    text = """
import a.b as c, d
  import e
from f.g import (h,
 i)
x = 1; import hidden
# import j
important = 1
from . import k
from __future__ import annotations
"""
    assert sorted(set(manifest.imported_by(text))) == ["__future__", "a", "d", "e", "f"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1, "1"),
        (None, "None"),
        ([1, "a", {"b": (2.5,)}], "[1, 'a', {'b': (2.5,)}]"),
        (Path("/x"), "/x"),
        ("x" * 1000, "'" + "x" * 199 + "…"),
        (list(range(1000)), None),
        (object(), None),
        (b"x" * (1 << 20), None),
        ([[[[1]]]], None),
    ],
)
def test_plain_values(value, shown: str | None) -> None:
    assert manifest.plain(value) == shown


def test_values_of_numpy() -> None:
    np = pytest.importorskip("numpy")
    assert manifest.plain(np.float32(0.5)) == "0.5"
    assert manifest.plain(np.zeros((3, 4))) is None
    assert manifest._kind(np.zeros((3, 4))) == "<ndarray (3, 4)>"


class Broken:
    """An argument whose parts raise errors."""

    def __repr__(self) -> str:
        raise RuntimeError

    def __getattr__(self, name: str):
        raise RuntimeError(name)


def test_errors_of_objects_do_not_reach_the_program() -> None:
    sent: list[dict] = []

    class Channel:
        def send(self, op: str, manifest: dict) -> None:
            sent.append(manifest)

    made = manifest.Manifest(Channel(), keeps_sources=True)  # type: ignore[arg-type]
    made.arguments(Broken())
    made.arguments(argparse.Namespace(a=Broken(), b=1))
    made.function(len)
    made.modules("/no/such/folder")
    made.source("cell", "\udc80 not ( valid")
    made.start()
    made.end()
    assert sent
