"""A plugin of a few lines, as the kubelet sees it."""

from collections.abc import Mapping, Sequence

import pytest

from kedge.deviceplugin import UNHEALTHY, ContainerAllocateResponse, Device, Owner, Plugin, Refused
from kedge.deviceplugin.messages import DevicePluginOptions
from kedge.testing.device_plugin import ScriptedPlugin


class Plain(Plugin):
    resource = "example.com/plain"

    def devices(self) -> Sequence[Device]:
        return [Device("a"), Device("b", UNHEALTHY)]


class Careful(Plain):
    async def pre_start(
        self, ids: Sequence[str], env: Mapping[str, str], owner: Owner | None
    ) -> None:
        raise Refused("no")

    async def prefer(
        self, available: Sequence[str], included: Sequence[str], size: int
    ) -> Sequence[str]:
        return available

    async def release(self, ids: Sequence[str], owner: Owner | None) -> None:
        pass


def test_what_is_overridden_is_asked_for() -> None:
    assert Plain().options == DevicePluginOptions()
    assert Careful().options == DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=True, release_required=True
    )


def test_the_socket_is_named_after_the_resource() -> None:
    assert Plain().socket == "example.com_plain.sock"
    assert ScriptedPlugin("a.b/c").socket == "a.b_c.sock"


async def test_containers_need_nothing_unless_the_plugin_says_so() -> None:
    assert await Plain().allocate(["a"], None) == ContainerAllocateResponse()


async def test_a_kubelet_that_asks_what_it_need_not_is_answered() -> None:
    plugin = Plain()
    assert list(await plugin.prefer(["a", "b"], [], 1)) == [], "it is all the same"
    await plugin.pre_start(["a"], {}, None)
    await plugin.release(["a"], None)


def test_a_plugin_without_devices_is_none() -> None:
    class Nothing(Plugin):
        resource = "example.com/nothing"

    with pytest.raises(TypeError, match="devices"):
        Nothing()  # type: ignore[abstract]
