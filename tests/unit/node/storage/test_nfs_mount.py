"""The calls of mount(2) for exports."""

import errno

import pytest

from kedge.node.storage import nfs_mount
from kedge.node.storage.nfs_mount import NfsMount
from kedge.supervisor.kernel import libc


def test_versions_are_tried_from_the_newest() -> None:
    found = nfs_mount.attempts("s:/x", "192.0.2.1", (), is_read_only=False)
    assert found[0] == NfsMount("s:/x", libc.MS_NODEV, "vers=4.2,addr=192.0.2.1")
    assert [each.options.partition(",")[0] for each in found] == [
        "vers=4.2",
        "vers=4.1",
        "vers=4.0",
        "vers=3",
    ]


@pytest.mark.parametrize("version", ["nfsvers=4.1", "vers=3", "v4.2"])
def test_a_given_version_is_the_only_one(version: str) -> None:
    options = ("hard,noatime", version, "timeo=600")
    assert nfs_mount.attempts("s:/x", "192.0.2.1", options, is_read_only=True) == [
        NfsMount(
            "s:/x",
            libc.MS_NODEV | libc.MS_RDONLY | 0x400,
            f"hard,{version},timeo=600,addr=192.0.2.1",
        )
    ]


def test_an_address_with_colons_has_brackets() -> None:
    assert nfs_mount.export("2001:db8::1", "/x") == "[2001:db8::1]:/x"
    assert nfs_mount.export("nas.example.com", "/x") == "nas.example.com:/x"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.ENODEV, "the kernel of the node has no NFS client (module nfs)"),
        (errno.ENOENT, "the server has no such export"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_failures_have_words(number: int, text: str) -> None:
    assert nfs_mount.words(OSError(number, "Input/output error")) == text


def test_only_an_unknown_version_leads_to_another_attempt() -> None:
    assert nfs_mount.is_version_refused(OSError(errno.EPROTONOSUPPORT, ""))
    assert not nfs_mount.is_version_refused(OSError(errno.ETIMEDOUT, ""))
