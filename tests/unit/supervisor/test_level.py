import os
from types import SimpleNamespace

import pytest

from kedge.supervisor import level, subordinate_ids
from kedge.supervisor.kernel import delegation
from kedge.supervisor.machine_capabilities import (
    FULL,
    ONE_ID,
    PLAIN,
    SUBORDINATE_IDS,
    USERNS,
    of_level,
)

REFUSED, WORKS, NO_OVERLAY, MANY = level._REFUSED, 0, level._NO_OVERLAY, level._MANY_IDS


def moving() -> int:
    os.chdir("/")
    return 0


def raising() -> int:
    raise OSError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("user", "namespaces", "mapped", "writable", "expected"),
    [
        (0, WORKS, WORKS, True, (FULL, False, True)),
        (0, NO_OVERLAY, WORKS, True, (FULL, False, False)),
        (0, WORKS, WORKS, False, (USERNS, False, True)),
        (0, REFUSED, WORKS, True, (USERNS, True, True)),
        (1000, WORKS, WORKS, True, (USERNS, True, True)),
        (1000, WORKS, NO_OVERLAY, False, (USERNS, True, False)),
        (1000, WORKS, REFUSED, True, (PLAIN, False, False)),
        (0, REFUSED, REFUSED, True, (PLAIN, False, False)),
    ],
)
def test_the_level_follows_from_what_works(
    user: int,
    namespaces: int,
    mapped: int,
    writable: bool,
    expected: tuple[str, bool, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes = {level._namespaces: namespaces, level._mapped_namespaces: mapped}
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(level, "_outcome", lambda attempt: outcomes[attempt])
    names = frozenset({"cpu", "memory"} if writable else ())
    monkeypatch.setattr(delegation, "here", lambda: SimpleNamespace(controllers=lambda: names))
    found, _ = level.probe()
    assert (found.level, found.user_namespace, found.overlay) == expected
    assert found.has_cgroups is writable


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (MANY, (SUBORDINATE_IDS, True)),
        (MANY | NO_OVERLAY, (SUBORDINATE_IDS, False)),
        (WORKS, (ONE_ID, True)),
    ],
)
def test_an_attempt_tells_whether_ids_were_mapped(
    outcome: int, expected: tuple[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(level, "_outcome", lambda _: outcome)
    monkeypatch.setattr(delegation, "here", lambda: SimpleNamespace(controllers=frozenset))
    found, _ = level.probe()
    assert (found.ids, found.overlay) == expected


def test_the_ids_are_those_of_the_entered_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of_level(USERNS)
    monkeypatch.setattr(subordinate_ids, "are_mapped", lambda: True)
    assert level.with_own_ids(found).ids == SUBORDINATE_IDS
    monkeypatch.setattr(subordinate_ids, "are_mapped", lambda: False)
    assert level.with_own_ids(found).ids == ONE_ID


def test_an_attempt_does_not_change_this_process() -> None:
    before = os.getcwd()
    assert level._outcome(moving) == 0
    assert level._outcome(lambda: NO_OVERLAY) == NO_OVERLAY
    assert level._outcome(lambda: MANY | NO_OVERLAY) == MANY | NO_OVERLAY
    assert level._outcome(lambda: MANY | REFUSED) == REFUSED
    assert level._outcome(raising) == REFUSED
    assert level._outcome(lambda: 77) == REFUSED
    assert os.getcwd() == before
