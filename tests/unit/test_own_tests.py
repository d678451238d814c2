"""Each module of some packages has a test file of its own name, at the same place in tests/unit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

UNIT = Path(__file__).parent
SOURCE = UNIT.parents[1] / "src" / "kedge"

WITHOUT = {
    "apiserver/admission": {
        "certificate_approval",
        "certificate_signing",
        "certificate_subject_restriction",
        "refusal",
        "signers",
    },
    "apiserver/verbs": set[str](),
    "node": {
        "access",
        "agent",
        "cdi",
        "channel",
        "conditions",
        "descriptors",
        "dialing",
        "documents",
        "door",
        "embedded",
        "ending",
        "exposition",
        "farewells",
        "image",
        "layers",
        "logs",
        "marks",
        "masquerade",
        "measuring",
        "meters",
        "netlink",
        "outcome",
        "parts",
        "payload",
        "plugin",
        "record",
        "remains",
        "runtime",
        "simulated",
        "status",
        "stopping",
        "streams",
        "summary",
        "teardown",
        "telling",
        "usage",
        "watcher",
    },
    "supervisor": {
        "__main__",
        "command",
        "idmapped",
        "inode_flags",
        "launch",
        "launcher",
        "level",
        "libc",
        "namespaces",
        "plan",
        "privileges",
        "rootfs",
        "sandbox",
        "server",
        "streams",
        "supervisor",
        "user_namespace",
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
