"""PodSecurity in a server: which writes it has a say in, and what it says.

What the levels forbid is told by the cases of kedge.api.pod_security.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.api.core_v1 import namespace
from kedge.api.core_v1.pod import pod
from kedge.api.pod_security.configuration import PodSecurityConfiguration
from kedge.api.pod_security.levels import LevelVersion, PodSecurityPolicy
from kedge.api.resource import Resource
from kedge.apiserver.admission.pod_security import PodSecurity, is_raised
from kedge.machinery.errors import StatusError
from kedge.testing.admission import attempt, cache_with
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import MERGE, LocalAnswer, LocalServer
from kedge.testing.pods import new_pod, pod_document
from kedge.testing.workloads import workload_document

P = "pod-security.kubernetes.io/"
HERE = "/api/v1/namespaces/here"
BAD: dict[str, Any] = {"hostNetwork": True}
WHY = "host namespaces (hostNetwork=true)"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(admission=["NamespaceLifecycle", "PodSecurity"]) as running:
        yield running


async def labelled(server: LocalServer, name: str = "here", **labels: str) -> LocalAnswer:
    given = {P + key.replace("_", "-"): value for key, value in labels.items()}
    body = {"metadata": {"name": name, "labels": given}}
    return await server.call("POST", "/api/v1/namespaces", body)


def warnings(answer: LocalAnswer) -> list[str]:
    return [
        text.removeprefix('299 - "').removesuffix('"').replace('\\"', '"')
        for text in answer.warnings
    ]


async def posted(server: LocalServer, name: str = "pod", **spec: Any) -> LocalAnswer:
    return await server.call(
        "POST",
        f"{HERE}/pods",
        pod_document(metadata={"name": name, "namespace": "here"}, spec=spec),
    )


async def test_a_pod_that_breaks_the_enforced_level_is_refused(server: LocalServer) -> None:
    await labelled(server, enforce="baseline")
    answer = await posted(server, **BAD)
    assert answer.status == 403
    assert answer.message == (
        f'pods "pod" is forbidden: violates PodSecurity "baseline:latest": {WHY}'
    )
    assert answer.document["details"] == {"name": "pod", "kind": "pods"}
    assert warnings(answer) == []
    assert (await posted(server)).status == 201


async def test_a_stricter_level_warns(server: LocalServer) -> None:
    await labelled(server, enforce="privileged", warn="baseline", warn_version="v1.20")
    answer = await posted(server, **BAD)
    assert answer.status == 201
    assert warnings(answer) == [f'would violate PodSecurity "baseline:v1.20": {WHY}']


NGINX = {"name": "nginx", "image": "nginx", "ports": [{"containerPort": 80}]}
LACKING = (
    'allowPrivilegeEscalation != false (container "nginx" must set'
    " securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container"
    ' "nginx" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or'
    ' container "nginx" must set securityContext.runAsNonRoot=true), seccompProfile (pod or'
    ' container "nginx" must set securityContext.seccompProfile.type to "RuntimeDefault" or'
    ' "Localhost")'
)


@pytest.mark.parametrize(
    ("labels", "code", "warned"),
    [
        ({"warn": "baseline"}, 201, []),
        ({"enforce": "privileged"}, 201, []),
        ({"enforce": "baseline", "warn": "baseline"}, 201, []),
        ({"enforce": "baseline", "warn": "restricted", "audit": "restricted"}, 201, [LACKING]),
        ({"enforce": "restricted", "warn": "restricted"}, 403, []),
    ],
)
async def test_the_published_namespaces_and_pod(
    server: LocalServer, labels: dict[str, str], code: int, warned: list[str]
) -> None:
    """The labels of Kubernetes' tutorials and examples, and the pod that they create."""
    versions = {f"{mode}_version": "latest" for mode in labels}
    await labelled(server, **labels, **versions)
    answer = await posted(server, "nginx", containers=[NGINX])
    assert answer.status == code
    assert warnings(answer) == [
        f'would violate PodSecurity "restricted:latest": {each}' for each in warned
    ]
    if code == 403:
        said = 'pods "nginx" is forbidden: violates PodSecurity "restricted:latest": '
        assert answer.message == f"{said}{LACKING}"


async def test_workloads_are_only_warned_about(server: LocalServer) -> None:
    await labelled(server, enforce="baseline")
    body = workload_document(
        {"metadata": {"namespace": "here"}, "spec": {"template": {"spec": BAD}}}
    )
    answer = await server.call("POST", "/apis/apps/v1/namespaces/here/deployments", body)
    assert answer.status == 201
    assert warnings(answer) == [f'would violate PodSecurity "baseline:latest": {WHY}']
    template = {"metadata": {"name": "t"}, "template": {"spec": pod_document(spec=BAD)["spec"]}}
    answer = await server.call("POST", f"{HERE}/podtemplates", template)
    assert f'would violate PodSecurity "baseline:latest": {WHY}' in warnings(answer)


async def test_only_updates_that_change_images_are_looked_at(server: LocalServer) -> None:
    await labelled(server)
    await posted(server, **BAD)
    await server.merge(HERE, {"metadata": {"labels": {f"{P}enforce": "baseline"}}})
    path = f"{HERE}/pods/pod"
    patch = "application/strategic-merge-patch+json"
    label = {"metadata": {"labels": {"a": "b"}}}
    assert (await server.call("PATCH", path, label, content_type=patch)).status == 200
    image = {"spec": {"containers": [{"name": "ctr", "image": "other"}]}}
    assert (await server.call("PATCH", path, image, content_type=patch)).status == 403


async def test_labels_that_cannot_be_read_are_refused(server: LocalServer) -> None:
    answer = await labelled(server, enforce="xx", warn_version="1.3")
    assert answer.status == 422
    assert answer.message == (
        'Namespace "here" is invalid: ['
        f'metadata.labels[{P}enforce]: Invalid value: "xx": '
        "must be one of privileged, baseline, restricted, "
        f'metadata.labels[{P}warn-version]: Invalid value: "1.3": must be "latest" or "v1.x"]'
    )


async def test_a_raised_level_warns_about_pods_that_run(server: LocalServer) -> None:
    await labelled(server)
    for name in ("x3", "x2", "x1"):
        await posted(server, name, **BAD)
    await posted(server, "good")
    privileged = {"name": "c", "image": "i", "securityContext": {"privileged": True}}
    await posted(server, "alone", containers=[privileged])
    port = {"containerPort": 80, "hostPort": 80}
    for name in ("y2", "y1"):
        await posted(server, name, containers=[{"name": "c", "image": "i", "ports": [port]}])
    change = {"metadata": {"labels": {f"{P}enforce": "baseline"}}}
    answer = await server.call("PATCH", HERE, change, content_type=MERGE)
    assert answer.status == 200
    assert warnings(answer) == [
        'existing pods in namespace "here" violate the new PodSecurity enforce level'
        ' "baseline:latest"',
        "alone: privileged",
        "x1 (and 2 other pods): host namespaces",
        "y1 (and 1 other pod): hostPort",
    ]


def configured(**parts: Any) -> PodSecurityConfiguration:
    return PodSecurityConfiguration(
        PodSecurityPolicy(LevelVersion("baseline"), LevelVersion("baseline")), **parts
    )


async def annotations(configuration: PodSecurityConfiguration, **spec: Any) -> dict[str, str]:
    """What the audit log says of a pod in the namespace default."""
    resources: list[Resource[Any]] = [namespace.RESOURCE, pod.RESOURCE]
    cache = await cache_with(resources, [(namespace.RESOURCE, {"metadata": {"name": "default"}})])
    plugin = PodSecurity(
        cache.of(namespace.RESOURCE), cache.of(pod.RESOURCE), FakeClock(), configuration
    )
    asked = attempt(pod.RESOURCE, "CREATE", new_pod(spec=spec))
    try:
        await plugin.validate(asked)
    except StatusError:
        asked.request.annotations["refused"] = "yes"
    return asked.request.annotations


async def test_the_audit_log_names_the_level_and_what_breaks_it() -> None:
    assert await annotations(configured()) == {f"{P}enforce-policy": "baseline:latest"}
    assert await annotations(configured(), **BAD) == {
        f"{P}enforce-policy": "baseline:latest",
        f"{P}audit-violations": f'would violate PodSecurity "baseline:latest": {WHY}',
        "refused": "yes",
    }
    assert await annotations(PodSecurityConfiguration(), **BAD) == {
        f"{P}enforce-policy": "privileged:latest"
    }


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"usernames": frozenset({"somebody"})}, "user"),
        ({"namespaces": frozenset({"default"})}, "namespace"),
        ({"runtime_classes": frozenset({"safe"})}, "runtimeClass"),
    ],
)
async def test_exempt_pods_pass(parts: dict[str, Any], reason: str) -> None:
    found = await annotations(configured(**parts), runtimeClassName="safe", **BAD)
    assert found == {f"{P}exempt": reason}


async def test_labels_of_an_exempt_namespace_draw_a_warning() -> None:
    configuration = PodSecurityConfiguration(namespaces=frozenset({"exm"}))
    resources: list[Resource[Any]] = [namespace.RESOURCE, pod.RESOURCE]
    cache = await cache_with(resources)
    plugin = PodSecurity(
        cache.of(namespace.RESOURCE), cache.of(pod.RESOURCE), FakeClock(), configuration
    )
    labels = {f"{P}enforce": "restricted", f"{P}warn": "baseline"}
    given = namespace.RESOURCE.from_document({"metadata": {"name": "exm", "labels": labels}})
    asked = attempt(namespace.RESOURCE, "CREATE", given)
    await plugin.validate(asked)
    assert asked.request.warnings == [
        'namespace "exm" is exempt from Pod Security, and the policy'
        " (enforce=restricted:latest, warn=baseline:latest) will be ignored"
    ]


@pytest.mark.parametrize(
    ("new", "old", "raised"),
    [
        ("baseline", "privileged", True),
        ("baseline", "restricted", False),
        ("privileged", "baseline", False),
        ("baseline", "baseline", False),
    ],
)
def test_a_level_is_raised(new: str, old: str, raised: bool) -> None:
    assert is_raised(LevelVersion(new), LevelVersion(old)) is raised
    assert is_raised(LevelVersion(new, 20), LevelVersion(old)) is (new != "privileged")
