"""Uplinks: which program is tried, and what is said of those that do not work."""

import pytest

from kedge.node.network import uplink, uplink_program
from kedge.node.network.network_place import MACHINE
from kedge.node.network.uplink import Uplink, UplinkEnd, forwarded, wanted
from kedge.testing.clock import FakeClock


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("auto", ("slirp4netns", "pasta")),
        ("pasta", ("pasta",)),
        ("forwarder", ()),
    ],
)
def test_the_setting_names_the_programs(setting: str, names: tuple[str, ...]) -> None:
    assert tuple(wanted(setting)) == names


def test_the_annotation_says_why_the_agent_forwards() -> None:
    assert forwarded({}) == "forwarder"
    ends = {"slirp4netns": UplinkEnd("not installed"), "pasta": UplinkEnd("it makes no link")}
    assert forwarded(ends) == "forwarder (slirp4netns: not installed; pasta: it makes no link)"


class NoMaker:
    """A supervisor that must not be asked."""

    async def uplink_namespace(self) -> list[int]:
        raise AssertionError("no namespace is needed")


async def test_without_programs_nothing_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    said: list[str] = []
    await Uplink(MACHINE, NoMaker(), uplink.ORDER, FakeClock(), said.append).run()
    assert said == ["forwarder (slirp4netns: not installed; pasta: not installed)"]


async def test_a_device_that_cannot_be_opened_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uplink_program, "TUN", "/nonexistent/tun")
    assert uplink_program.lack_of_device() == "/nonexistent/tun: No such file or directory"
