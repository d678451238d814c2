"""Compare the vendored files of the dashboard with the packages on npm, or write them again.

`python tools/vendor.py` checks that each file is, byte for byte, the one of the package and version
in tools/vendored.json. With --write it replaces the files and their hashes: change the version in
the table first.
"""

import argparse
import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tools" / "vendored.json"
VENDOR = ROOT / "src" / "kedge" / "apiserver" / "ui" / "static" / "vendor"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the files and their hashes")
    write = parser.parse_args().write
    table = json.loads(TABLE.read_text())
    problems = [problem for package in table for problem in check(package, write=write)]
    if write:
        TABLE.write_text(json.dumps(table, indent=2) + "\n")
    print("\n".join(problems) or "all vendored files are those of their packages")
    return 1 if problems else 0


def check(package: dict[str, Any], *, write: bool) -> list[str]:
    """Return what is wrong with the files of one package."""
    name = f"{package['name']}@{package['version']}"
    archive = packed(name)
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(archive).digest()).decode()}"
    if write:
        package["integrity"] = integrity
    elif integrity != package["integrity"]:
        return [f"{name}: the package is another one, {integrity}"]
    folder = VENDOR / f"{package['name']}-{package['version']}"
    problems = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for file, known in package["files"].items():
            member = members.extractfile(f"package/{known['from']}")
            assert member is not None
            content = member.read()
            if write:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(content)
                known["sha256"] = hashlib.sha256(content).hexdigest()
            elif (folder / file).read_bytes() != content:
                problems.append(f"{name}: {file} differs")
    return problems


def packed(name: str) -> bytes:
    """Return the archive of a package."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True)
        (archive,) = Path(folder).iterdir()
        return archive.read_bytes()


if __name__ == "__main__":
    sys.exit(main())
