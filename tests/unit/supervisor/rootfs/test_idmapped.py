import errno
from pathlib import Path

import pytest

from kedge.supervisor.kernel import libc
from kedge.supervisor.rootfs import idmapped


def test_mounts_below_that_cannot_be_mapped_stay_unmapped(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []

    def map_ids(opened: int, namespace: int, *, recursive: bool) -> None:
        tried.append(recursive)
        if recursive:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(libc, "map_ids", map_ids)
    idmapped.show(3, "/data", 4)
    assert tried == [True, False]


def test_a_file_system_without_support_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(libc, "map_ids", refused)
    with pytest.raises(idmapped.Unmappable, match='on "/data": invalid argument') as caught:
        idmapped.show(3, "/data", 4)
    assert caught.value.errno == errno.EOPNOTSUPP
