"""A driver registers, publishes its devices, and comes back after its kubelet."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kedge.dra import CdiSpecs, ClaimReference
from kedge.dra import messages as m
from kedge.dra.driver import cdi_directory
from kedge.testing.dra_driver import ClaimStage, ScriptedDriver, claim_stage, pod_using


@pytest.fixture
async def stage(tmp_path: Path) -> Any:
    async with claim_stage(tmp_path) as made:
        yield made


async def test_parameters_reach_the_driver(stage: ClaimStage) -> None:
    await stage.begin()
    driver = await stage.plug(ScriptedDriver(stage.server.client))
    pod = pod_using("c")
    opaque = {"driver": driver.name, "parameters": {"mode": "fast"}}
    await stage.claim("c", pod, config=[{"source": "FromClaim", "opaque": opaque}])
    await stage.claims.prepare(pod)
    assert driver.claims[0].devices[0].parameters == [{"mode": "fast"}]


async def test_an_alternative_is_reported_as_its_request(stage: ClaimStage) -> None:
    driver = ScriptedDriver(stage.server.client)
    driver.answer = [m.PreparedDevice(request_names=["gpu/small"], device_name="g-0")]
    meta = (await stage.claim("c")).metadata
    reference = ClaimReference(namespace="default", name="c", uid=meta.uid)
    answer = await driver._prepare(m.ClaimsRequest(claims=[reference]), None)
    [device] = answer.claims[meta.uid].devices
    assert device.request_names == ["gpu"]


async def test_the_calls_of_several_pods_do_not_overlap(stage: ClaimStage) -> None:
    await stage.begin()
    driver = await stage.plug(ScriptedDriver(stage.server.client))
    driver.gates["prepare"] = asyncio.Event()
    pods = [pod_using(f"c-{i}", uid=str(i)) for i in range(3)]
    for i, pod in enumerate(pods):
        await stage.claim(f"c-{i}", pod)
    work = [asyncio.ensure_future(stage.claims.prepare(pod)) for pod in pods]
    await stage.passing(lambda: driver.calls)
    assert len(driver.calls) == 1
    driver.gates["prepare"].set()
    await asyncio.gather(*work)
    assert len(driver.calls) == 3


async def test_an_error_of_the_driver_is_an_answer(stage: ClaimStage) -> None:
    driver = ScriptedDriver(stage.server.client)
    driver.failures = {"prepare": ValueError("bug"), "unprepare": ValueError("")}
    await stage.claim("c")
    claim = ClaimReference(namespace="default", name="c", uid="other")
    request = m.ClaimsRequest(claims=[claim])
    replaced = (await driver._prepare(request, None)).claims["other"]
    assert replaced.error == "claim default/c got replaced"
    missing = m.ClaimsRequest(claims=[ClaimReference(namespace="default", name="x", uid="1")])
    assert (await driver._prepare(missing, None)).claims["1"].error == (
        'retrieve claim default/x: resourceclaims.resource.k8s.io "x" not found'
    )
    assert (await driver._unprepare(request, None)).claims["other"].error == "ValueError"


async def test_a_driver_listens_again_when_its_socket_is_removed(stage: ClaimStage) -> None:
    await stage.begin()
    driver = await stage.plug(ScriptedDriver(stage.server.client))
    socket = stage.directory / "plugins_registry" / f"{driver.name}-reg.sock"
    before = socket.stat().st_ino, socket.stat().st_ctime_ns
    socket.unlink()
    await stage.passing(
        lambda: socket.exists() and before != (socket.stat().st_ino, socket.stat().st_ctime_ns)
    )
    await stage.passing(lambda: stage._is_usable(driver))


async def test_a_driver_waits_for_its_kubelet(stage: ClaimStage) -> None:
    driver = await stage.plug(ScriptedDriver(stage.server.client), wait=False)
    await stage.begin()
    await stage.passing(lambda: stage._is_usable(driver))


async def test_sockets_are_removed_at_the_end(stage: ClaimStage) -> None:
    await stage.begin()
    await stage.unplug(await stage.plug(ScriptedDriver(stage.server.client)))
    assert list((stage.directory / "plugins_registry").iterdir()) == []


def test_specs_are_beside_the_sockets_of_other_directories() -> None:
    assert cdi_directory(Path("/var/lib/kubelet")) == Path("/var/run/cdi")
    assert cdi_directory(Path("/tmp/p")) == Path("/tmp/p/cdi")


async def test_unprepare_removes_the_spec_by_default(tmp_path: Path) -> None:
    class Plain(ScriptedDriver):
        unprepare = ScriptedDriver.__mro__[1].unprepare  # type: ignore[attr-defined]

    async with claim_stage(tmp_path) as stage:
        driver = Plain(stage.server.client)
        driver.cdi = CdiSpecs(tmp_path, "d")
        driver.cdi.write("u", {})
        await driver.unprepare(ClaimReference(uid="u"))
        assert not driver.cdi.path("u").exists()
