"""Write wheel/licenses.txt, the licences of what is compiled into the program: make licenses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "PATENTS*")


def go(*words: str) -> str:
    """What a command of Go's says."""
    return subprocess.run(["go", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def texts(folder: Path) -> str:
    """The licences in a module's folder, and in those above its package."""
    found = sorted({path for name in NAMES for path in folder.glob(name) if path.is_file()})
    return "\n\n".join(path.read_text(encoding="utf-8").strip() for path in found)


def main() -> None:
    places = {"Go's standard library": Path(go("env", "GOROOT").strip())}
    decoder, said = json.JSONDecoder(), go("list", "-deps", "-json=Module", ".").strip()
    at = 0
    while at < len(said):
        package, at = decoder.raw_decode(said, at)
        at = len(said) - len(said[at:].lstrip())
        module = package.get("Module", {})
        if module and not module.get("Main"):
            places[module["Path"]] = Path(module["Dir"])
    by_text: dict[str, list[str]] = {}
    for name, folder in sorted(places.items()):
        text = texts(folder)
        if not text:
            raise SystemExit(
                f"there is no licence of {name} in {folder}: add its file's name to the names that are looked for"
            )
        by_text.setdefault(text, []).append(name)
    rule = "=" * 80
    parts = [rule + "\n" + "\n".join(names) + f"\n{rule}\n\n{text}\n" for text, names in by_text.items()]
    head = "The program tfcluster has parts of these Go modules. Their licences are:\n\n"
    (ROOT / "wheel" / "licenses.txt").write_text(head + "\n".join(parts), encoding="utf-8")


main()
