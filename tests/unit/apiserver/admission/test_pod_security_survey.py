from typing import Any

from kedge.api.core_v1.pod import pod
from kedge.api.pod_security.levels import LevelVersion
from kedge.apiserver.admission import pod_security_survey
from kedge.apiserver.admission.pod_security_survey import ExistingPods
from kedge.testing.admission import cache_with
from kedge.testing.clock import FakeClock
from kedge.testing.pods import pod_document

BASELINE = LevelVersion("baseline")
HEAD = 'existing pods in namespace "default" violate the new PodSecurity enforce level'


def bad(name: str, controller: str = "", **spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "R", "name": "r", "uid": controller, "controller": True}
    metadata = {"name": name, "ownerReferences": [owner] if controller else []}
    return pod_document(metadata=metadata, spec={"hostPID": True} | spec)


async def survey(*pods: dict[str, Any], exempt: frozenset[str] = frozenset()) -> list[str]:
    cache = await cache_with([pod.RESOURCE], [(pod.RESOURCE, each) for each in pods])
    return await ExistingPods(cache.of(pod.RESOURCE), FakeClock(), exempt).warnings(
        "default", BASELINE
    )


async def test_pods_of_exempt_classes_are_not_looked_at() -> None:
    assert await survey(bad("a", runtimeClassName="safe"), exempt=frozenset({"safe"})) == []


async def test_one_pod_of_each_controller_comes_first(monkeypatch: Any) -> None:
    monkeypatch.setattr(pod_security_survey, "MOST_PODS", 2)
    pods = [bad("a", "one"), bad("b", "one"), bad("c", "two")]
    assert await survey(*pods) == [
        "new PodSecurity enforce level only checked against the first 2 of 3 existing pods",
        f'{HEAD} "baseline:latest"',
        "a (and 1 other pod): host namespaces",
    ]
    pods[2]["spec"] = {"containers": pods[2]["spec"]["containers"], "hostNetwork": True}
    assert (await survey(*pods))[2] == "a (and 1 other pod): host namespaces"


async def test_a_namespace_without_pods_draws_no_warning() -> None:
    assert await survey() == []
