"""The answers of drivers, which must be complete and of a reasonable size."""

from typing import Any

import pytest

from kedge.dra import messages as m
from kedge.node.resource_claims.claim_ledger import ClaimError
from kedge.node.resource_claims.driver_client import (
    MOST_DEVICES,
    MOST_NAMES,
    DriverClient,
    chosen_service,
)
from kedge.testing.clock import FakeClock

CLAIMS = [m.ClaimReference(uid="1", name="a"), m.ClaimReference(uid="2", name="b")]
GOOD = m.PrepareResult(devices=[m.PreparedDevice(pool_name="p", device_name="d")])


class Scripted(DriverClient):
    """Answers without a connection."""

    def __init__(self, answer: Any, services: tuple[str, ...] = (m.V1,)) -> None:
        from pathlib import Path

        super().__init__("d.example.com", Path("/nowhere"), services, FakeClock())
        self.answer = answer

    async def call(self, method: Any, request: Any, seconds: float | None = None) -> Any:
        assert seconds is not None
        return self.answer


async def test_the_devices_of_all_claims_are_returned() -> None:
    answer = m.PrepareResponse(claims={"1": GOOD, "2": m.PrepareResult()})
    assert await Scripted(answer).prepare(CLAIMS) == {"1": GOOD.devices, "2": ()}


@pytest.mark.parametrize(
    ("results", "error"),
    [
        ({"1": GOOD}, "NodePrepareResources skipped 1 ResourceClaims"),
        ({}, "NodePrepareResources skipped 2 ResourceClaims"),
        (
            {"1": GOOD, "2": GOOD, "3": GOOD},
            "NodePrepareResources returned result for unknown claim UID 3",
        ),
        (
            {"1": GOOD, "2": m.PrepareResult(error="hot")},
            "NodePrepareResources failed for ResourceClaim b: hot",
        ),
        (
            {"1": GOOD, "2": m.PrepareResult(error="x" * 5000)},
            "NodePrepareResources failed for ResourceClaim b: " + "x" * 1024,
        ),
    ],
)
async def test_incomplete_answers_are_errors(
    results: dict[str, m.PrepareResult], error: str
) -> None:
    with pytest.raises(ClaimError) as caught:
        await Scripted(m.PrepareResponse(claims=results)).prepare(CLAIMS)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "devices",
    [
        [m.PreparedDevice()] * (MOST_DEVICES + 1),
        [m.PreparedDevice(cdi_device_ids=["x"] * (MOST_NAMES + 1))],
        [m.PreparedDevice(request_names=["x"] * (MOST_NAMES + 1))],
        [m.PreparedDevice(cdi_device_ids=["x" * 2000])],
        [m.PreparedDevice(share_id="x" * 2000)],
    ],
)
async def test_answers_without_measure_are_errors(devices: list[m.PreparedDevice]) -> None:
    answer = m.PrepareResponse(claims={"1": GOOD, "2": m.PrepareResult(devices=devices)})
    with pytest.raises(ClaimError, match="too many devices or too long names"):
        await Scripted(answer).prepare(CLAIMS)


async def test_an_unprepared_claim_has_an_entry_in_the_answer() -> None:
    done = m.UnprepareResult()
    await Scripted(m.UnprepareResponse(claims={"1": done, "2": done})).unprepare(CLAIMS)
    with pytest.raises(ClaimError, match="NodeUnprepareResources skipped 1 ResourceClaims"):
        await Scripted(m.UnprepareResponse(claims={"1": done})).unprepare(CLAIMS)
    failed = m.UnprepareResult(error="busy")
    with pytest.raises(ClaimError) as caught:
        await Scripted(m.UnprepareResponse(claims={"1": failed, "2": done})).unprepare(CLAIMS)
    assert str(caught.value) == "NodeUnprepareResources failed for ResourceClaim a: busy"


def test_a_driver_is_sent_the_environment_if_it_asks() -> None:
    assert not Scripted(None).wants_environment
    assert Scripted(None, (m.V1, m.ENVIRONMENT)).wants_environment


def test_the_first_known_service_of_a_driver_is_chosen() -> None:
    assert chosen_service(["x", m.V1BETA1, m.V1]) == m.V1BETA1
    assert chosen_service(["x"]) == ""
