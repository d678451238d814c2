import pytest

from kedge.node.runtime.capabilities import (
    ALL,
    DEFAULT,
    UnknownCapability,
    effective_capabilities,
    mask,
)


@pytest.mark.parametrize(
    ("add", "drop", "expected"),
    [
        ((), (), DEFAULT),
        (("NET_ADMIN",), (), DEFAULT | {"NET_ADMIN"}),
        (("cap_net_admin",), ("CAP_MKNOD",), (DEFAULT | {"NET_ADMIN"}) - {"MKNOD"}),
        (("NET_BIND_SERVICE",), ("ALL",), {"NET_BIND_SERVICE"}),
        (("ALL",), (), ALL),
        (("ALL",), ("SYS_ADMIN",), ALL - {"SYS_ADMIN"}),
        ((), ("ALL",), frozenset()),
    ],
)
def test_what_is_added_and_dropped(
    add: tuple[str, ...], drop: tuple[str, ...], expected: frozenset[str]
) -> None:
    assert effective_capabilities(add, drop, privileged=False) == expected


def test_the_privileged_have_everything() -> None:
    assert effective_capabilities((), ("ALL",), privileged=True) == ALL


def test_the_well_known_set_has_its_well_known_bits() -> None:
    assert mask(DEFAULT) == 0xA80425FB
    assert mask(ALL) == (1 << 41) - 1


def test_a_capability_nobody_knows_is_refused() -> None:
    with pytest.raises(UnknownCapability, match='unknown capability "FLY"'):
        effective_capabilities(("FLY",), (), privileged=False)
