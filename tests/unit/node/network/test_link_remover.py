"""Links are removed together, and only those."""

import asyncio

import pytest
from tests.unit.node.network.test_bridge import can_make_links

from kedge.node.network.link_remover import LinkRemover
from kedge.node.network.netlink import Netlink
from kedge.testing.network import run_elsewhere

pytestmark = pytest.mark.skipif(
    not can_make_links(), reason="this user may not make network links on this machine"
)


def test_links_are_removed_together_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []
    remove_group = Netlink.remove_group

    def noted(netlink: Netlink, group: int) -> None:
        groups.append(group)
        remove_group(netlink, group)

    monkeypatch.setattr(Netlink, "remove_group", noted)

    async def inside() -> None:
        remover = LinkRemover()
        with Netlink() as netlink:
            for name in ("kv-one", "kv-two", "kv-three", "kv-four", "kv-other"):
                netlink.add_bridge(name)
            names = ("kv-one", "kv-two", "kv-three", "kv-four", "kv-missing")
            async with asyncio.TaskGroup() as tasks:
                for name in names:
                    tasks.create_task(remover.remove(name))
            assert [name for name in netlink.links() if name.startswith("kv")] == ["kv-other"]
        remover.close()

    run_elsewhere(inside)
    # The first begins at once; the others wait for it, and then go together.
    assert len(groups) == 1


def test_a_link_that_vanishes_meanwhile_leaves_the_others_in_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups: list[int] = []
    set_group = Netlink.set_group

    def vanished(netlink: Netlink, name: str, group: int) -> None:
        if name == "kv-gone":
            raise OSError(19, "No such device")
        set_group(netlink, name, group)

    monkeypatch.setattr(Netlink, "set_group", vanished)
    monkeypatch.setattr(Netlink, "remove_group", lambda _, group: groups.append(group))

    async def inside() -> None:
        remover = LinkRemover()
        async with asyncio.TaskGroup() as tasks:
            for name in ("kv-one", "kv-gone", "kv-three"):
                tasks.create_task(remover.remove(name))
        remover.close()

    run_elsewhere(inside)
    assert len(groups) == 1


def test_a_kernel_that_removes_no_groups_removes_each_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(netlink: Netlink, group: int) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(Netlink, "remove_group", refused)

    async def inside() -> None:
        remover = LinkRemover()
        with Netlink() as netlink:
            for name in ("kv-one", "kv-two", "kv-three"):
                netlink.add_bridge(name)
            async with asyncio.TaskGroup() as tasks:
                for name in ("kv-one", "kv-two", "kv-three"):
                    tasks.create_task(remover.remove(name))
            assert not [name for name in netlink.links() if name.startswith("kv")]
        remover.close()

    run_elsewhere(inside)
