from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as some

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.resource_v1 import device_class, resource_claim, resource_slice
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.scheduler.devices import device_state
from kedge.scheduler.devices.allocation import allocation_of
from kedge.scheduler.devices.device_state import DeviceProposal, DeviceState
from kedge.testing.pods import new_pod

CASES = yaml.safe_load(Path(__file__).with_name("allocations.yaml").read_text())
DRIVER = "d.example"


def new_slice(name: str, spec: dict[str, Any]) -> resource_slice.ResourceSlice:
    devices = [
        {"name": each} if isinstance(each, str) else each for each in spec.get("devices", [])
    ]
    pool = {
        "name": spec["pool"],
        "generation": spec.get("generation", 1),
        "resourceSliceCount": spec.get("count", 1),
    }
    nodes = spec.get("nodes", {"nodeName": "n1"})
    body = {"driver": DRIVER, "pool": pool, "devices": devices, **nodes}
    if "counters" in spec:
        body["sharedCounters"] = spec["counters"]
    return resource_slice.RESOURCE.from_document({"metadata": {"name": name}, "spec": body})


def new_request(name: str, wish: Any) -> dict[str, Any]:
    if isinstance(wish, list):
        return {"name": name, "firstAvailable": [new_wish(each) for each in wish]}
    return {"name": name, "exactly": new_wish(wish)}


def new_wish(wish: dict[str, Any]) -> dict[str, Any]:
    body = {"deviceClassName": wish.get("class", "any"), **wish}
    body.pop("class", None)
    if "mode" in body:
        body["allocationMode"] = body.pop("mode")
    body["selectors"] = [{"cel": {"expression": each}} for each in wish.get("selectors", [])]
    return body


def new_claim(name: str, devices: dict[str, Any], **more: Any) -> ResourceClaim:
    meta = {"name": name, "namespace": "default", "uid": name}
    document = {"metadata": meta, "spec": {"devices": devices}, **more}
    strategy = resource_claim.RESOURCE.strategy
    return strategy.default(resource_claim.RESOURCE.from_document(document))


def new_state(case: dict[str, Any]) -> DeviceState:
    state = DeviceState()
    for name, spec in {"any": {}, **case.get("classes", {})}.items():
        selectors = [{"cel": {"expression": each}} for each in spec.get("selectors", [])]
        document = {"metadata": {"name": name}, "spec": {"selectors": selectors}}
        state.classes.put(device_class.RESOURCE.from_document(document))
    for i, spec in enumerate(case["slices"]):
        state.slices.put(new_slice(f"slice-{i}", spec))
    taken = [each.split("/") for each in case.get("taken", [])]
    results = [
        {"request": "r", "driver": DRIVER, "pool": pool, "device": name} for pool, name in taken
    ]
    status = {"allocation": {"devices": {"results": results}}}
    state.claims.put(new_claim("taken", {"requests": []}, status=status))
    return state


def propose(case: dict[str, Any]) -> tuple[DeviceProposal, list[ResourceClaim]]:
    claims = [
        new_claim(
            f"c{i}",
            {
                "requests": [new_request(name, wish) for name, wish in requests.items()],
                "constraints": case.get("constraints", []),
            },
        )
        for i, requests in enumerate(case["claims"])
    ]
    state = new_state(case)
    for claim in claims:
        state.claims.put(claim)
    for long in state.evaluate_selectors(pod_with(*claims), ()):
        if long is not None:
            state.keep(long, long.result())
    return state.propose("pod", claims, "n1", {"zone": "a"}), claims


def pod_with(*claims: ResourceClaim) -> Pod:
    names = [each.metadata.name for each in claims]
    entries = [{"name": each, "resourceClaimName": each} for each in names]
    meta = {"name": "p", "namespace": "default"}
    return new_pod(metadata=meta, spec={"resourceClaims": entries})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_devices_are_allocated_as_kubernetes_does(case: dict[str, Any]) -> None:
    proposal, claims = propose(case)
    allocations = [
        allocation_of(claim, choice, "n1", lambda: "share").devices.results
        for claim, choice in zip(claims, proposal.choices, strict=False)
    ]
    results = [each for allocation in allocations for each in allocation]
    shown = [f"{each.request}={each.pool}/{each.device}" for each in results]
    assert shown == case.get("results", [])
    if "refusal_starts" in case:
        assert proposal.refusal.startswith(case["refusal_starts"])
    else:
        assert proposal.refusal == case.get("refusal", "")
    if "consumed" in case:
        consumed = [
            {name: str(amount) for name, amount in each.consumedCapacity.items()}
            for each in results
        ]
        assert consumed == case["consumed"]


DEVICES = some.lists(some.tuples(some.integers(0, 2), some.booleans()), max_size=5)
WISHES = some.lists(some.tuples(some.integers(1, 2), some.integers(0, 2)), min_size=1, max_size=3)


@settings(deadline=None, max_examples=200)
@given(devices=DEVICES, wishes=WISHES, matches=some.booleans())
def test_devices_are_found_if_and_only_if_there_are_some(
    devices: list[tuple[int, bool]], wishes: list[tuple[int, int]], matches: bool
) -> None:
    """Compare with trying all assignments: devices have a size and may be taken."""
    case = {
        "slices": [
            {
                "pool": "p",
                "devices": [
                    {"name": f"d{i}", "attributes": {"size": {"int": size}}}
                    for i, (size, _) in enumerate(devices)
                ],
            }
        ],
        "taken": [f"p/d{i}" for i, (_, is_taken) in enumerate(devices) if is_taken],
        "claims": [
            {
                f"r{i}": {
                    "count": count,
                    "selectors": [f'device.attributes["{DRIVER}"].size >= {size}'],
                }
                for i, (count, size) in enumerate(wishes)
            }
        ],
        "constraints": [{"matchAttribute": f"{DRIVER}/size"}] if matches else [],
    }
    proposal, _ = propose(case)
    slots = [size for count, size in wishes for _ in range(count)]
    free = [i for i, (_, is_taken) in enumerate(devices) if not is_taken]

    def is_solution(chosen: tuple[int, ...]) -> bool:
        sizes = [devices[i][0] for i in chosen]
        return (
            len(set(chosen)) == len(chosen)
            and all(size >= least for size, least in zip(sizes, slots, strict=True))
            and (not matches or len(set(sizes)) == 1)
        )

    possible = any(is_solution(chosen) for chosen in product(free, repeat=len(slots)))
    assert (not proposal.refusal) == possible
    if proposal.choices:
        names = [each.id.device for each in proposal.choices[0].devices]
        assert is_solution(tuple(int(name[1:]) for name in names))


def test_a_long_search_ends() -> None:
    devices = [
        {"name": f"d{i}", "attributes": {"even": {"int": i % 2}, "n": {"int": i}}}
        for i in range(60)
    ]
    case = {
        "slices": [{"pool": "p", "devices": devices}],
        "claims": [{"a": {"count": 15}, "b": {"count": 15}}],
        "constraints": [
            {"requests": ["a", "b"], "matchAttribute": f"{DRIVER}/even"},
            {"requests": ["b"], "matchAttribute": f"{DRIVER}/n"},
        ],
    }
    assert propose(case)[0].refusal == device_state.TOO_LONG


def test_an_allocation_that_is_not_written_counts() -> None:
    state = new_state({"slices": [{"pool": "p", "devices": ["d0", "d1"]}]})
    first, second, third = (
        new_claim(f"c{i}", {"requests": [new_request("a", {})]}) for i in range(3)
    )
    for claim in (first, second):
        [choice] = state.propose("pod", [claim], "n1", {}).choices
        state.reserve(claim, allocation_of(claim, choice, "n1", str))
    assert state.propose("pod", [third], "n1", {}).refusal == device_state.CANNOT
    assert state.release(first)
    assert state.propose("pod", [third], "n1", {}).refusal == ""


def test_a_written_allocation_is_no_longer_pending_once_it_is_seen() -> None:
    state = new_state({"slices": [{"pool": "p", "devices": ["d0"]}]})
    claim = new_claim("c", {"requests": [new_request("a", {})]})
    [choice] = state.propose("pod", [claim], "n1", {}).choices
    state.reserve(claim, allocation_of(claim, choice, "n1", str))
    state.claims.put(claim)
    assert state.is_pending(claim)
    result = {"request": "a", "driver": DRIVER, "pool": "p", "device": "d0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    state.claims.put(new_claim("c", {"requests": [new_request("a", {})]}, status=status))
    assert not state.is_pending(claim)
    assert len(state.allocated().whole) == 1


def test_selectors_are_evaluated_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    state = new_state({"slices": [{"pool": "p", "devices": ["d0", "d1"]}]})
    request = new_request("a", {"selectors": ['device.driver == "d.example"']})
    claim = new_claim("c", {"requests": [request]})
    state.claims.put(claim)
    pod = pod_with(claim)
    assert len(list(state.evaluate_selectors(pod, ()))) == 3
    assert len(list(state.evaluate_selectors(pod, ()))) == 1
    monkeypatch.setattr(device_state, "compiled", None)
    assert state.propose("pod", [claim], "n1", {}).refusal == ""


@pytest.mark.parametrize(
    "expression",
    [
        "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, "
        "[0,1,2,3,4,5,6,7,8,9].all(d, a + b + c + d >= 0))))",
        f'device.driver == "d.example" && "{"x" * 2_000}" != ""',
    ],
    ids=["costly", "long"],
)
def test_a_selector_that_takes_long_is_left_to_a_thread(expression: str) -> None:
    state = new_state({"slices": [{"pool": "p", "devices": ["d0"]}]})
    request = new_request("a", {"selectors": [expression]})
    claim = new_claim("c", {"requests": [request]})
    state.claims.put(claim)
    assert state.propose("pod", [claim], "n1", {}).refusal == device_state.TOO_LONG
    state.forget_proposals()
    [evaluation] = [
        each for each in state.evaluate_selectors(pod_with(claim), ()) if each is not None
    ]
    state.keep(evaluation, evaluation.result())
    assert state.propose("pod", [claim], "n1", {}).refusal == ""


def test_a_result_for_a_changed_slice_is_not_kept() -> None:
    state = new_state({"slices": [{"pool": "p", "devices": ["d0"]}]})
    claim = new_claim("c", {"requests": [new_request("a", {"selectors": ["x" * 2_000]})]})
    state.claims.put(claim)
    [evaluation] = [
        each for each in state.evaluate_selectors(pod_with(claim), ()) if each is not None
    ]
    changed = new_slice("slice-0", {"pool": "p", "devices": ["d0"]})
    state.slices.put(changed)
    state.keep(evaluation, True)
    again = evaluation._replace(slice=changed)
    assert [*state.evaluate_selectors(pod_with(claim), ())] == [None, again]


def test_a_search_evaluates_few_selectors_itself() -> None:
    state = new_state({"slices": [{"pool": "p", "devices": [f"d{i}" for i in range(40)]}]})
    request = new_request("a", {"selectors": ['device.driver == "other"']})
    claim = new_claim("c", {"requests": [request]})
    assert state.propose("pod", [claim], "n1", {}).refusal == device_state.TOO_LONG
    assert len(state._results["slice-0"][1]) <= 10


def test_a_used_up_budget_ends_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_state, "POD_STEPS", 0)
    monkeypatch.setattr(device_state, "DeviceSearch", None)
    claim = new_claim("c", {"requests": [new_request("a", {})]})
    state = new_state({"slices": [{"pool": "p", "devices": ["d"]}]})
    assert state.propose("pod", [claim], "n1", {}).refusal == device_state.TOO_LONG
