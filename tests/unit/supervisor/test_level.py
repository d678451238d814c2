import os
from types import SimpleNamespace

import pytest

from kedge.supervisor import level
from kedge.supervisor.kernel import cgroups


def raising() -> None:
    raise OSError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("user", "namespaces", "mapped", "writable", "expected"),
    [
        (0, True, True, True, (level.FULL, False)),
        (0, True, True, False, (level.USERNS, False)),
        (0, False, True, True, (level.USERNS, True)),
        (1000, True, True, True, (level.USERNS, True)),
        (1000, True, False, True, (level.PLAIN, False)),
        (0, False, False, True, (level.PLAIN, False)),
    ],
)
def test_the_level_follows_from_what_works(
    user: int,
    namespaces: bool,
    mapped: bool,
    writable: bool,
    expected: tuple[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    works = {level._namespaces: namespaces, level._mapped_namespaces: mapped}
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(level, "_works", lambda attempt: works[attempt])
    here = SimpleNamespace(writable=lambda: writable)
    monkeypatch.setattr(cgroups, "here", lambda: here)
    assert level.probe() == expected


def test_an_attempt_does_not_change_this_process() -> None:
    before = os.getcwd()
    assert level._works(lambda: os.chdir("/"))
    assert not level._works(raising)
    assert os.getcwd() == before
