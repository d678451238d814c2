"""Claims are prepared before pods start, and unprepared after the last pod, whatever dies."""

import asyncio
from typing import Any

import pytest

from kedge.deviceplugin.messages import CDIDevice
from kedge.deviceplugin.pod_resources import ClaimResource, DynamicResource
from kedge.dra import HEALTHY_DEVICE, UNHEALTHY_DEVICE, PreparedDevice, Refused
from kedge.node.pod.dependencies import ClaimFailure, ConfigFailure
from kedge.testing.dra_driver import DRIVER_NAME, NODE_NAME, ClaimStage, ScriptedDriver, pod_using

TWO: tuple[dict[str, str], ...] = ({}, {"request": "s", "device": "g-1"})


async def driven(stage: ClaimStage, **options: Any) -> ScriptedDriver:
    await stage.begin()
    return await stage.plug(ScriptedDriver(stage.server.client, **options))


async def fails(work: Any) -> str:
    with pytest.raises(ClaimFailure) as caught:
        await work
    return str(caught.value)


async def test_containers_get_the_devices_of_their_requests(stage: ClaimStage) -> None:
    await driven(stage)
    pod = pod_using("c", requests=["r", "s"])
    await stage.claim("c", pod, results=TWO)
    await stage.claims.prepare(pod)
    first, second = pod.spec.containers
    assert stage.claims.cdi_devices(pod, first) == [f"{DRIVER_NAME}/claim=g-0"]
    assert stage.claims.cdi_devices(pod, second) == [f"{DRIVER_NAME}/claim=g-1"]
    assert stage.claims.dynamic_resources(pod, first) == [
        DynamicResource(
            claim_name="c",
            claim_namespace="default",
            claim_resources=[
                ClaimResource(
                    cdi_devices=[CDIDevice(name=f"{DRIVER_NAME}/claim={device}")],
                    driver_name=DRIVER_NAME,
                    pool_name=NODE_NAME,
                    device_name=device,
                    share_id="",
                )
                for device in ("g-0", "g-1")
            ],
        )
    ]


async def test_a_container_without_a_prepared_claim_waits(stage: ClaimStage) -> None:
    await stage.begin()
    pod = pod_using("c")
    with pytest.raises(ConfigFailure, match="unable to get claim info for ResourceClaim c"):
        stage.claims.cdi_devices(pod, pod.spec.containers[0])


async def test_a_shared_claim_is_prepared_once_and_unprepared_after_the_last_pod(
    stage: ClaimStage,
) -> None:
    driver = await driven(stage)
    pods = [pod_using("c", uid="1"), pod_using("c", uid="2")]
    await stage.claim("c", *pods)
    await asyncio.gather(*(stage.claims.prepare(pod) for pod in pods))
    assert driver.calls == [("prepare", "c")]
    await stage.claims.unprepare("1")
    assert driver.calls == [("prepare", "c")]
    assert set(stage.claims.pod_uids()) == {"2"}
    await stage.claims.unprepare("2")
    await stage.claims.unprepare("2")
    assert driver.calls == [("prepare", "c"), ("unprepare", "c")]
    assert set(stage.claims.pod_uids()) == set()


async def test_all_claims_of_a_pod_are_one_call_of_each_driver(stage: ClaimStage) -> None:
    driver = await driven(stage)
    other = await stage.plug(ScriptedDriver(stage.server.client, "other.example.com"))
    pod = pod_using("a", "b")
    await stage.claim("a", pod)
    await stage.claim("b", pod, results=({}, {"request": "s", "driver": other.name}))
    await stage.claims.prepare(pod)
    assert driver.calls == [("prepare", "a"), ("prepare", "b")]
    assert other.calls == [("prepare", "b")]
    assert stage.claims.cdi_devices(pod, pod.spec.containers[0]) == [
        f"{DRIVER_NAME}/claim=g-0",
        f"{other.name}/claim=g-0",
    ]


@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ([], 'fetch ResourceClaim c: resourceclaims.resource.k8s.io "c" not found'),
        ([()], "pod pod-u (u) is not allowed to use ResourceClaim c"),
        ([("pod",)], f"DRA driver {DRIVER_NAME} is not registered"),
    ],
)
async def test_what_is_wrong_is_said_and_nothing_is_kept(
    stage: ClaimStage, claims: list[tuple[str, ...]], error: str
) -> None:
    await stage.begin()
    pod = pod_using("c")
    for pods in claims:
        await stage.claim("c", *(pod for _ in pods))
    text = await fails(stage.claims.prepare(pod))
    assert text.startswith(f"prepare dynamic resources: {error}")
    assert set(stage.claims.pod_uids()) == set()
    await stage.claims.unprepare("u")


async def test_a_refusal_of_the_driver_is_passed_on_and_the_call_repeated(
    stage: ClaimStage,
) -> None:
    driver = await driven(stage)
    pod = pod_using("c")
    await stage.claim("c", pod)
    driver.failures["prepare"] = Refused("the device is hot")
    assert await fails(stage.claims.prepare(pod)) == (
        "prepare dynamic resources: NodePrepareResources failed for ResourceClaim c: "
        "the device is hot"
    )
    assert set(stage.claims.pod_uids()) == {"u"}
    driver.failures.clear()
    await stage.claims.prepare(pod)
    assert driver.calls == [("prepare", "c")] * 2


async def test_a_driver_that_hangs_is_given_up(stage: ClaimStage) -> None:
    driver = await driven(stage)
    pod = pod_using("c")
    await stage.claim("c", pod)
    driver.gates["prepare"] = asyncio.Event()
    task = asyncio.ensure_future(stage.claims.prepare(pod))
    await stage.passing(lambda: driver.calls)
    await stage.passing(task.done, step=5, pause=0.01)
    assert await fails(task) == (
        "prepare dynamic resources: NodePrepareResources: "
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    )


async def test_too_many_devices_are_refused(stage: ClaimStage) -> None:
    driver = await driven(stage)
    pod = pod_using("c")
    await stage.claim("c", pod)
    driver.answer = [PreparedDevice(pool_name="p", device_name="x" * 2000)]
    assert "too many devices or too long names" in await fails(stage.claims.prepare(pod))
    driver.answer = [PreparedDevice(pool_name="p", device_name="x")] * 2000
    assert "too many devices or too long names" in await fails(stage.claims.prepare(pod))
    driver.answer = [PreparedDevice(device_name="x" * 2**20)]
    assert "code = ResourceExhausted" in await fails(stage.claims.prepare(pod))


async def test_a_claim_that_replaces_another_waits_for_its_end(stage: ClaimStage) -> None:
    await driven(stage)
    pod, later = pod_using("c", uid="1"), pod_using("c", uid="2")
    await stage.claim("c", pod)
    await stage.claims.prepare(pod)
    await stage.server.client.delete_collection(_claims(), "default")
    await stage.claim("c", later)
    assert "old ResourceClaim with same name c" in await fails(stage.claims.prepare(later))
    await stage.claims.unprepare("1")
    await stage.claims.prepare(later)


# Restarts.


async def test_the_next_agent_knows_the_claims(stage: ClaimStage) -> None:
    driver = await driven(stage)
    pod = pod_using("c")
    await stage.claim("c", pod)
    await stage.claims.prepare(pod)
    await stage.end()
    await stage.begin()
    # The driver is not back yet, and the container may restart nevertheless.
    assert stage.claims.cdi_devices(pod, pod.spec.containers[0]) == [f"{DRIVER_NAME}/claim=g-0"]
    assert await fails(stage.claims.unprepare("u")) == (
        f"unprepare dynamic resources: DRA driver {DRIVER_NAME} is not registered"
    )
    await stage.passing(lambda: stage._is_usable(driver))
    await stage.claims.unprepare("u")
    assert driver.calls == [("prepare", "c"), ("unprepare", "c")]


async def test_an_agent_that_dies_during_the_call_leaves_the_claim_to_the_next(
    stage: ClaimStage,
) -> None:
    driver = await driven(stage)
    pod = pod_using("c")
    await stage.claim("c", pod)
    driver.gates["prepare"] = asyncio.Event()
    task = asyncio.ensure_future(stage.claims.prepare(pod))
    await stage.passing(lambda: driver.calls)
    task.cancel()
    await stage.end()
    driver.gates["prepare"].set()
    await stage.begin()
    await stage.passing(lambda: stage._is_usable(driver))
    assert set(stage.claims.pod_uids()) == {"u"}
    await stage.claims.unprepare("u")
    assert driver.calls[-1] == ("unprepare", "c")


async def test_a_claim_is_prepared_again_for_a_pod_that_starts_after_a_restart(
    stage: ClaimStage,
) -> None:
    """After a reboot of the machine the CDI specs in /var/run are gone."""
    driver = await driven(stage)
    pod = pod_using("c")
    await stage.claim("c", pod)
    await stage.claims.prepare(pod)
    await stage.end()
    await stage.begin()
    await stage.passing(lambda: stage._is_usable(driver))
    await stage.claims.prepare(pod)
    await stage.claims.prepare(pod)
    assert driver.calls == [("prepare", "c")] * 2


async def test_a_claim_stays_until_its_driver_is_back(stage: ClaimStage) -> None:
    driver = await driven(stage)
    other = await stage.plug(ScriptedDriver(stage.server.client, "other.example.com"))
    pod = pod_using("a", "b")
    await stage.claim("a", pod)
    await stage.claim("b", pod, results=({"driver": other.name},))
    await stage.claims.prepare(pod)
    await stage.unplug(other)
    assert "DRA driver other.example.com is not registered" in await fails(
        stage.claims.unprepare("u")
    )
    assert driver.calls[-1] == ("unprepare", "a")
    other = await stage.plug(ScriptedDriver(stage.server.client, "other.example.com"))
    await stage.claims.unprepare("u")
    assert other.calls == [("unprepare", "b")]
    assert driver.calls.count(("unprepare", "a")) == 1


# The environment.


async def test_a_driver_that_asks_for_it_gets_the_environment(stage: ClaimStage) -> None:
    driver = await driven(stage, wants_environment=True)
    pod = pod_using("c", requests=["r", "s"])
    await stage.claim("c", pod, results=TWO)
    stage.environment.variables["BAD"] = "\udcff"
    await stage.claims.prepare(pod)
    found = driver.claims[0].containers
    assert [(each.owner and each.owner.container_name, each.requests) for each in found] == [
        ("c0", ["r"]),
        ("c1", ["s"]),
    ]
    assert [each.env for each in found] == [
        {"A": "1", "CONTAINER": "c0"},
        {"A": "1", "CONTAINER": "c1"},
    ]


async def test_other_drivers_get_no_environment(stage: ClaimStage) -> None:
    driver = await driven(stage)
    pod = pod_using("c")
    await stage.claim("c", pod)
    await stage.claims.prepare(pod)
    assert driver.claims[0].containers == ()


async def test_an_environment_that_is_not_known_is_explained(stage: ClaimStage) -> None:
    driver = await driven(stage, wants_environment=True)
    pod = pod_using("c")
    await stage.claim("c", pod)
    stage.environment.failure = 'configmap "a" not found'
    await stage.claims.prepare(pod)
    (found,) = driver.claims[0].containers
    assert (found.env, found.env_error) == ({}, 'configmap "a" not found')


async def test_a_refused_environment_reaches_no_driver(stage: ClaimStage) -> None:
    driver = await driven(stage, wants_environment=True)
    pod = pod_using("c")
    await stage.claim("c", pod)
    stage.access.refusal = "variable A: not allowed"
    message = await fails(stage.claims.prepare(pod))
    assert message == "prepare dynamic resources: variable A: not allowed"
    assert driver.claims == []


# Health.


async def test_the_health_of_devices_is_in_the_status(stage: ClaimStage) -> None:
    driver = await driven(stage)
    pod = pod_using("c", requests=["r", "s"])
    await stage.claim("c", pod, results=TWO)
    await stage.claims.prepare(pod)
    driver.reported = {"g-0": HEALTHY_DEVICE, "g-1": UNHEALTHY_DEVICE}
    driver.changed()
    await stage.passing(lambda: stage.pods_told)

    def seen() -> dict[str, Any]:
        return {
            container: [(each.name, [(d.resourceID, d.health) for d in each.resources])]
            for container, found in stage.claims.health(pod).items()
            for each in found
        }

    assert seen() == {
        "c0": [("claim:c/r", [(f"{DRIVER_NAME}/claim=g-0", "Healthy")])],
        "c1": [("claim:c/s", [(f"{DRIVER_NAME}/claim=g-1", "Unhealthy")])],
    }
    stage.pods_told.clear()
    await stage.unplug(driver)
    assert stage.pods_told
    assert seen()["c0"] == [("claim:c/r", [(f"{DRIVER_NAME}/claim=g-0", "Unknown")])]


def _claims() -> Any:
    from kedge.api.resource_v1 import resource_claim

    return resource_claim.RESOURCE
