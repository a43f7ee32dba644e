"""Import contracts, and no machine path or registry host in the tree."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Built from pieces, so that this file does not name what it forbids.
FORBIDDEN = re.compile(
    "|".join(
        [
            "py" + r"pi\.org",
            "python" + r"hosted\.org",
            "registry" + r"\.npm" + "js",
            # At a path's beginning: pages and objects may be called so.
            r"(?<!\w)/wo" + "rk/",
            r"(?<!\w)/ro" + "ot/",
        ]
    )
)
BINARY = {".png", ".ico", ".woff", ".woff2", ".gz"}


def test_import_contracts() -> None:
    tool = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_tree_names_no_machine_and_no_registry() -> None:
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    found = []
    for name in listing.splitlines():
        path = ROOT / name
        if path.suffix in BINARY or "static/vendor" in name or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if FORBIDDEN.search(line):
                found.append(f"{name}:{number}: {line.strip()[:80]}")
    assert not found, "\n".join(found)
