"""Drivers register by their sockets, several instances of each, and may vanish."""

from pathlib import Path

import pytest

from kedge.deviceplugin.messages import PluginInfo
from kedge.node.devices.watcher import PluginRefused
from kedge.node.resource_claims.claim_ledger import ClaimError
from kedge.node.resource_claims.driver_registry import MOST_INSTANCES, WIPING_SECONDS
from kedge.testing.dra_driver import DRIVER_NAME, ClaimStage, ScriptedDriver

V1 = "v1.DRAPlugin"


def info(**changes: object) -> PluginInfo:
    known = {"type": "DRAPlugin", "name": DRIVER_NAME, "supported_versions": [V1]}
    return PluginInfo(**(known | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "endpoint", "error"),
    [
        (
            info(supported_versions=[]),
            "/e",
            "plugin validation failed with err: invalid supported gRPC versions of DRA driver "
            "plugin gadget.example.com at endpoint /e: empty list of supported gRPC services "
            "(aka supported versions)",
        ),
        (
            info(supported_versions=["v1alpha3.Node", "x"]),
            "/e",
            "plugin validation failed with err: invalid supported gRPC versions of DRA driver "
            "plugin gadget.example.com at endpoint /e: none of services supported by the plugin "
            '(["v1alpha3.Node" "x"]) are supported by the kubelet '
            '(["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        ),
        (
            info(name="No Name"),
            "/e",
            'plugin validation failed with err: "No Name" is no name of a DRA driver',
        ),
        (
            info(name="a" * 64),
            "/e",
            f'plugin validation failed with err: "{"a" * 64}" is no name of a DRA driver',
        ),
        (
            info(),
            "e",
            "plugin validation failed with err: the endpoint e of DRA driver plugin "
            "gadget.example.com is no absolute path",
        ),
    ],
)
async def test_what_cannot_be_used_is_refused(
    stage: ClaimStage, told: PluginInfo, endpoint: str, error: str
) -> None:
    await stage.begin()
    with pytest.raises(PluginRefused) as caught:
        await stage.claims.drivers.adopt(told, Path(endpoint))
    assert str(caught.value) == error


async def test_an_endpoint_belongs_to_one_instance(stage: ClaimStage) -> None:
    await stage.begin()
    registry = stage.claims.drivers
    withdraw = await registry.adopt(info(), Path("/e"))
    with pytest.raises(PluginRefused, match="endpoint /e already registered for DRA driver plugin"):
        await registry.adopt(info(), Path("/e"))
    await withdraw()
    await (await registry.adopt(info(), Path("/e")))()


async def test_the_number_of_instances_is_limited(stage: ClaimStage) -> None:
    await stage.begin()
    made = [await stage.claims.drivers.adopt(info(), Path(f"/{i}")) for i in range(MOST_INSTANCES)]
    with pytest.raises(PluginRefused, match="has 16 instances already"):
        await stage.claims.drivers.adopt(info(), Path("/more"))
    for withdraw in made:
        await withdraw()


async def test_the_newest_connected_instance_is_used(stage: ClaimStage) -> None:
    await stage.begin()
    registry = stage.claims.drivers
    with pytest.raises(ClaimError, match=r"DRA driver gadget\.example\.com is not registered"):
        registry.driver(DRIVER_NAME)
    driver = await stage.plug(ScriptedDriver(stage.server.client))
    connected = registry.driver(DRIVER_NAME)
    withdraw = await registry.adopt(info(), Path("/nothing/listens/here"))
    assert registry.driver(DRIVER_NAME) is connected
    await stage.unplug_sockets(driver)
    assert registry.driver(DRIVER_NAME).path == Path("/nothing/listens/here")
    await withdraw()


async def test_a_version_is_chosen_by_the_driver(stage: ClaimStage) -> None:
    await stage.begin()
    registry = stage.claims.drivers
    for services in (["v1beta1.DRAPlugin"], ["x", V1, "v1beta1.DRAPlugin"]):
        withdraw = await registry.adopt(info(supported_versions=services), Path("/e"))
        used = registry.driver(DRIVER_NAME)._methods.prepare.service
        assert used.endswith(services[-1] if len(services) == 1 else V1)
        await withdraw()


# ResourceSlices.


async def test_slices_are_removed_when_the_agent_begins(stage: ClaimStage) -> None:
    await stage.begin()
    await stage.passing(lambda: stage.removals.drivers == [""])


async def test_the_slices_of_a_driver_that_stays_away_are_removed(stage: ClaimStage) -> None:
    await stage.begin()
    driver = await stage.plug(ScriptedDriver(stage.server.client))
    await stage.clock.advance(2 * WIPING_SECONDS)
    assert stage.removals.drivers == [""]
    await stage.unplug(driver)
    await stage.clock.advance(WIPING_SECONDS / 2)
    assert stage.removals.drivers == [""]
    await stage.clock.advance(WIPING_SECONDS / 2)
    assert stage.removals.drivers == ["", DRIVER_NAME]


async def test_the_slices_of_a_driver_that_returns_stay(stage: ClaimStage) -> None:
    await stage.begin()
    await stage.unplug(await stage.plug(ScriptedDriver(stage.server.client)))
    await stage.clock.advance(WIPING_SECONDS / 2)
    await stage.plug(ScriptedDriver(stage.server.client))
    await stage.clock.advance(2 * WIPING_SECONDS)
    assert stage.removals.drivers == [""]
