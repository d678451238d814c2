"""Each module of some packages has a test file of its own name, at the same place in tests/unit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

UNIT = Path(__file__).parent
SOURCE = UNIT.parents[1] / "src" / "kedge"

WITHOUT = {
    "apiserver/admission": set[str](),
    "apiserver/verbs": set[str](),
    "dns": set[str](),
    "node": {
        "agent",
        "api_access",
        "cdi",
        "channel",
        "connection",
        "csi_messages",
        "descriptors",
        "embedded",
        "exposition",
        "grpc_socket",
        "image",
        "layers",
        "local_driver",
        "logs",
        "measure",
        "meters",
        "netlink",
        "node_record",
        "oci",
        "outcome",
        "plugin",
        "release_notifier",
        "runtime",
        "simulated",
        "status",
        "streams",
        "summary",
        "usage",
        "volume_driver",
        "volume_lookup",
        "volume_objects",
    },
    "supervisor": {
        "__main__",
    },
}
"""Modules without such a file: other suites, or files of another name, test them.

By package, without the folders in between. These lists may only become shorter.
"""


@pytest.mark.parametrize("package", WITHOUT)
def test_each_module_has_a_test_file_of_its_own_name(package: str) -> None:
    assert {*_untested(package)} == WITHOUT[package]


def _untested(package: str) -> Iterator[str]:
    for path in (SOURCE / package).rglob("*.py"):
        mirrored = UNIT / path.relative_to(SOURCE)
        if path.stem != "__init__" and not mirrored.with_name(f"test_{path.name}").exists():
            yield path.stem
