"""Options of mounts."""

import pytest

from kedge.node.storage.volume_image import mount_flags
from kedge.supervisor.kernel import libc


@pytest.mark.parametrize(
    ("options", "flags", "data"),
    [
        ((), 0, []),
        (("ro", "noexec"), libc.MS_RDONLY | libc.MS_NOEXEC, []),
        (("noatime,data=journal",), 0x400, ["data=journal"]),
        (("defaults", "rw"), 0, []),
    ],
)
def test_options_become_flags_and_data(
    options: tuple[str, ...], flags: int, data: list[str]
) -> None:
    assert mount_flags(options) == (flags, data)
