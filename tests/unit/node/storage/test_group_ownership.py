"""fsGroup on volumes."""

import os
from pathlib import Path

import pytest

from kedge.node.storage import group_ownership
from kedge.supervisor.files import group_walk, mapped

GROUP = os.getgid()
"""A group that an ordinary user may give files to."""


def test_the_top_decides_with_on_root_mismatch(tmp_path: Path) -> None:
    group_ownership.give(tmp_path, GROUP, is_stopped=lambda: False)
    assert group_ownership.is_owned(tmp_path, GROUP)
    assert not group_ownership.is_owned(tmp_path, GROUP + 1)


@pytest.mark.parametrize("has_subordinate_ids", [True, False])
def test_subordinate_ids_help_who_may_not_change_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_subordinate_ids: bool
) -> None:
    given: list[tuple[str, int]] = []

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    def give(path: str, group: int) -> bool:
        given.append((path, group))
        return has_subordinate_ids

    monkeypatch.setattr(group_walk, "give", refuse)
    monkeypatch.setattr(mapped, "give", give)
    if has_subordinate_ids:
        group_ownership.give(tmp_path, 7, is_stopped=lambda: False)
    else:
        with pytest.raises(PermissionError):
            group_ownership.give(tmp_path, 7, is_stopped=lambda: False)
    assert given == [(str(tmp_path), 7)]
