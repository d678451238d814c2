"""Files of others are those of their packages, to the byte, each with its licence."""

import hashlib
import json
from pathlib import Path

from kedge.apiserver.ui.static_files import ROOT

TABLE = Path(__file__).parents[4] / "tools" / "vendored.json"


def test_every_vendored_file_is_in_the_table() -> None:
    expected = {
        f"{package['name']}-{package['version']}/{name}": file["sha256"]
        for package in json.loads(TABLE.read_text())
        for name, file in package["files"].items()
    }
    vendor = ROOT / "vendor"
    found = {
        str(path.relative_to(vendor)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in vendor.rglob("*")
        if path.is_file()
    }
    assert found == expected


def test_every_package_has_its_licence() -> None:
    for package in json.loads(TABLE.read_text()):
        assert "LICENSE.txt" in package["files"]
        assert package["license"]
