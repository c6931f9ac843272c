"""Where the package finds its program, and what a wheel's kernelspec starts."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import venv

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PACKAGE = ROOT / "cluster" / "python" / "tfcluster"
LAUNCH = ROOT / "wheel" / "launch.py"
TELL = '#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n'


def executable(path: pathlib.Path) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TELL)
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> pathlib.Path:
    """An environment as pip leaves it, in a folder whose name has spaces and braces."""
    prefix = tmp_path / "my {env} 1"
    venv.create(prefix, symlinks=True)
    packages = next((prefix / "lib").glob("python*")) / "site-packages"
    (packages / "tfcluster").mkdir()
    for name in ("__init__.py", "program.py", "serverproxy.py"):
        shutil.copy(PACKAGE / name, packages / "tfcluster")
    shutil.copy(ROOT / "wheel" / "program.txt", packages / "tfcluster" / "_program.txt")
    spec = prefix / "share" / "jupyter" / "kernels" / "tfcluster"
    spec.mkdir(parents=True)
    shutil.copy(LAUNCH, spec)
    executable(prefix / "bin" / "tfcluster")
    return prefix


def ask(python: pathlib.Path | str, *words: str) -> str:
    env = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([python, *words], env=env, check=True, capture_output=True, text=True).stdout.strip()


NAME = f"python3.{sys.version_info.minor}"
INSTALLED = "from tfcluster import program; print(program.installed())"


def test_the_program_beside_the_package(environment: pathlib.Path) -> None:
    python = environment / "bin" / "python"
    assert ask(python, "-c", INSTALLED) == str(environment / "bin" / "tfcluster")
    said = ask(python, "-c", "from tfcluster import serverproxy; print(serverproxy.broker()['command'])")
    doubled = str(environment).replace("{", "{{").replace("}", "}}")
    assert said == str([f"{doubled}/bin/tfcluster", "broker", "--socket", "{unix_socket}"])
    (environment / "bin" / "tfcluster").unlink()
    assert ask(python, "-c", INSTALLED) == ""


def test_the_program_that_installed_the_package(environment: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = executable(tmp_path / "elsewhere" / "tfcluster")
    (note,) = environment.glob("lib/python*/site-packages/tfcluster/_program.txt")
    note.write_text(f"{other}\n")
    assert ask(environment / "bin" / "python", "-c", INSTALLED) == str(other)


def test_a_folder_of_packages(environment: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """pip install --target: the scripts are below the folder."""
    (package,) = environment.glob("lib/python*/site-packages/tfcluster")
    target = tmp_path / "target"
    shutil.copytree(package, target / "tfcluster")
    program = executable(target / "bin" / "tfcluster")
    assert ask(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(target)!r}); {INSTALLED}") == str(program)


def test_the_kernel_has_its_environments_python(environment: pathlib.Path) -> None:
    """Jupyter's own Python, which starts the launcher, may be that of another environment."""
    launch = environment / "share" / "jupyter" / "kernels" / "tfcluster" / "launch.py"
    for python in (sys.executable, environment / "bin" / "python"):
        program, *words = ask(python, str(launch), "-f", "/run/a b.json").splitlines()
        assert program == str(environment / "bin" / "tfcluster")
        assert words == ["kernel", "-f", "/run/a b.json", "--python", str(environment / "bin" / "python")]
    (environment / "pyvenv.cfg").unlink()  # now it is a prefix such as /usr/local
    assert ask(sys.executable, str(launch)).splitlines()[-1] == str(environment / "bin" / NAME)
    for python in (environment / "bin").glob("python*"):
        python.unlink()  # or such as ~/.local
    assert pathlib.Path(ask(sys.executable, str(launch)).splitlines()[-1]).name == NAME


def test_a_launcher_without_its_program(environment: pathlib.Path) -> None:
    os.unlink(environment / "bin" / "tfcluster")
    launch = environment / "share" / "jupyter" / "kernels" / "tfcluster" / "launch.py"
    done = subprocess.run([sys.executable, launch], capture_output=True, text=True)
    assert done.returncode == 1 and "cannot be started (No such file or directory)" in done.stderr
    assert "pip install --force-reinstall --no-deps WHEEL" in done.stderr


def test_the_command_that_installs_packages(environment: pathlib.Path) -> None:
    """Of pip, and of uv in an environment that uv made without pip."""
    shutil.copy(PACKAGE / "interpreter.py", next(environment.glob("lib/python*/site-packages/tfcluster")))
    python = environment / "bin" / "python"
    launch = environment / "share" / "jupyter" / "kernels" / "tfcluster" / "launch.py"
    (environment / "bin" / "tfcluster").unlink()
    by_pip, by_uv = f"'{python}' -m pip install", f"uv pip install --python '{python}'"

    def said() -> tuple[str, bool]:
        command = ask(python, "-c", "from tfcluster import interpreter; print(interpreter.install_command())")
        started = subprocess.run([sys.executable, launch], capture_output=True, text=True)
        return command, f"{command} --force-reinstall" in started.stderr

    assert said() == (by_pip, True)
    with (environment / "pyvenv.cfg").open("a") as config:
        config.write("uv = 0.13.9\n")
    assert said() == (by_uv, True)
    (next(environment.glob("lib/python*/site-packages")) / "pip").mkdir()
    assert said() == (by_pip, True)
