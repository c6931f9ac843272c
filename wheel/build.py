"""What a wheel has in addition to the Python package: the program, the kernelspec, and the list of its modules.

A hook of hatchling (pyproject.toml). With TFCLUSTER_WHEEL_ARCH=x86_64 or aarch64 the program is linked against glibc
2.17 by zig, for any machine of that kind (make wheel); without it by Go and the C compiler as they are here.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GLIBC = (2, 17)
GO_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
NVML = "github.com/NVIDIA/go-nvml"


class ProgramHook(BuildHookInterface[Any]):
    """Build the program and put it into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it writes the wheel."""
        arch = os.environ.get("TFCLUSTER_WHEEL_ARCH", "")
        if arch and arch not in GO_ARCH:
            raise SystemExit(f"TFCLUSTER_WHEEL_ARCH is {arch}: set it to {' or '.join(GO_ARCH)}, or unset it")
        if sys.platform != "linux":
            raise SystemExit(
                f"tfcluster runs on Linux alone, not on {sys.platform}: install it on a Linux host, or in a Linux "
                "container"
            )
        if shutil.which("go") is None:
            raise SystemExit(
                "there is no wheel for this machine, and Go, which builds one, is not installed: see go.dev/dl"
            )
        root = Path(self.root)
        out = root / "build" / (arch or "here")
        out.mkdir(parents=True, exist_ok=True)
        program, bom = out / "tfcluster", out / "tfcluster.cdx.json"
        env = {**os.environ, **(cross(root, arch) if arch else {})}
        # No path and no time of this machine is in the program: two builds of one commit are the same.
        ldflags = "-s -w -buildid=" + (" -extldflags=-Wl,-z,lazy" if arch else "")
        flags = ["-trimpath", "-buildvcs=false", f"-ldflags={ldflags}"]
        subprocess.run(["go", "build", *flags, "-o", program, "."], cwd=root, env=env, check=True)
        bom.write_text(bill_of_materials(program, self.metadata.version), encoding="utf-8")
        platform_tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{arch}" if arch else f"linux_{platform.machine()}"
        build_data["tag"] = f"py3-none-{platform_tag}"
        build_data["pure_python"] = False
        build_data["shared_scripts"][str(program)] = "tfcluster"
        build_data["sbom_files"].append(str(bom.relative_to(root)))


def cross(root: Path, arch: str) -> dict[str, str]:
    """The variables by which Go builds for another kind of machine and an older glibc."""
    import ziglang  # here: a wheel for this machine alone does not need it

    zig = Path(ziglang.__file__).with_name("zig")
    target = f"{arch}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    weak = root / "build" / "weak.h"
    weak.write_text(weak_functions(root), encoding="utf-8")
    return {
        # Not the caller's: a program for newer processors, or with other options.
        "GOAMD64": "v1",
        "GOARM64": "v8.0",
        "GOFLAGS": "-modcacherw" if "-modcacherw" in os.environ.get("GOFLAGS", "") else "",
        "GOEXPERIMENT": "",
        "CGO_LDFLAGS": "",
        "CGO_ENABLED": "1",
        "GOOS": "linux",
        "GOARCH": GO_ARCH[arch],
        "CC": shlex.join(["sh", str(root / "wheel" / "zigcc"), str(zig), target]),
        "CGO_CFLAGS": shlex.join(["-O2", "-Wno-deprecated-declarations", "-include", str(weak)]),
        "ZIG_GLOBAL_CACHE_DIR": os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(root / "build" / "zig")),
    }


def weak_functions(root: Path) -> str:
    """A C header that makes NVML's functions weak: they are found at the first call, in the driver's library."""
    where = ["go", "list", "-m", "-f", "{{.Dir}}", NVML]
    subprocess.run(["go", "mod", "download", NVML], cwd=root, check=True)
    folder = subprocess.run(where, cwd=root, check=True, capture_output=True, text=True).stdout.strip()
    header = Path(folder, "pkg", "nvml", "nvml.h").read_text(encoding="utf-8")
    names = sorted(set(re.findall(r"\b(nvml\w+)\s*\(", header)))
    # Without the first line the compiler complains of those that a file does not call.
    return "#pragma clang system_header\n" + "".join(f"#pragma weak {name}\n" for name in names)


def bill_of_materials(program: Path, version: str) -> str:
    """The modules in the program, as Go recorded them in it, in CycloneDX's JSON."""
    said = subprocess.run(["go", "version", "-m", program], check=True, capture_output=True, text=True).stdout
    go = re.search(r": go(\S+)", said)
    assert go is not None, said
    components = [component("std", go[1])]
    for line in said.splitlines():
        match line.split("\t")[1:]:
            case ["dep" | "=>", path, number, digest]:
                components.append(component(path, number) | {"properties": [{"name": "go.sum", "value": digest}]})
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/tfcluster@{version}",
                "name": "tfcluster",
                "version": version,
                "purl": f"pkg:pypi/tfcluster@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
    }
    return json.dumps(document, indent=1) + "\n"


def component(path: str, version: str) -> dict[str, Any]:
    """One module of Go's."""
    purl = f"pkg:golang/{path.lower()}@{version}"
    return {"type": "library", "bom-ref": purl, "name": path, "version": version, "purl": purl}


if __name__ == "__main__":
    sys.exit("hatchling runs this: make wheel")
