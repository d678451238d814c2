"""`kedge explain limits`: where amounts come from, and what would be the answer."""

import pytest

from kedge.api.core_v1.limit_range import RESOURCE
from kedge.api.limits.bounds import bounds_of
from kedge.cli.explain import limits as explaining
from kedge.cli.explain.limits import explain, explain_existing, explained
from kedge.cli.failure import Failure, ServerRefusal
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.manifests import Manifest, parse
from kedge.testing.local_server import LocalServer

LIMITS = {
    "metadata": {"name": "limits"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "max": {"cpu": "2", "memory": "1Gi"},
                "defaultRequest": {"cpu": "500m"},
            },
            {"type": "Pod", "max": {"cpu": "3"}},
        ]
    },
}
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers:
  - {name: i, image: x, resources: {limits: {cpu: 1, memory: 1Mi}}}
  containers:
  - {name: a, image: x, resources: {requests: {memory: 64Mi}, limits: {cpu: 4}}}
  - {name: b, image: x}
"""
GIVEN = "LimitRange limits default"


def manifests(text: str) -> list[Manifest]:
    return list(parse(text, "pod.yaml"))


def rows(text: str, namespace: str = "default") -> list[tuple[str, ...]]:
    bounds = bounds_of([RESOURCE.strategy.default(RESOURCE.from_document(LIMITS))])
    (manifest,) = manifests(text)
    resource = explaining._KINDS[manifest.api_version, manifest.kind]
    obj = explaining.object_of(resource, manifest, namespace)
    return list(explained(resource, obj, bounds).rows)


def test_every_amount_has_its_source() -> None:
    assert rows(POD) == [
        ("a", "cpu", "4", "copied from limit", "4", "manifest"),
        ("a", "memory", "64Mi", "manifest", "1Gi", GIVEN),
        ("b", "cpu", "500m", f"{GIVEN}Request", "2", GIVEN),
        ("b", "memory", "1Gi", f"{GIVEN}Request", "1Gi", GIVEN),
        ("init i", "cpu", "1", "copied from limit", "1", "manifest"),
        ("init i", "memory", "1Mi", "copied from limit", "1Mi", "manifest"),
        ("(pod)", "cpu", "4500m", "sum of containers", "6", "sum of containers"),
        ("(pod)", "memory", "1088Mi", "sum of containers", "2Gi", "sum of containers"),
    ]


def test_a_pod_may_speak_for_the_whole_of_itself() -> None:
    text = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  resources: {limits: {cpu: 2}}
  containers: [{name: a, image: x}]
"""
    assert ("(pod)", "cpu", "2", "set by the server", "2", "manifest") in rows(text)


def test_a_claim_has_only_requests() -> None:
    text = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: v}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
    assert rows(text) == [("-", "storage", "1Gi", "manifest", "-", "-")]


async def post_limits(server: LocalServer) -> None:
    await server.post("/api/v1/namespaces/default/limitranges", LIMITS)


async def test_what_would_be_refused_is_told_and_is_the_exit_code(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    await post_limits(server)
    assert await explain(there, manifests(POD), ask=False) == 1
    out = capsys.readouterr().out
    assert out.startswith('Pod "web", namespace default, LimitRanges: limits\n\nCONTAINER ')
    assert out.endswith(
        "\nIt would be refused:\n"
        '* maximum cpu usage per Container is 2, but limit is 4 (LimitRange "limits")\n'
        '* maximum cpu usage per Pod is 3, but limit is 6 (LimitRange "limits")\n\n'
    )


async def test_where_nothing_holds_nothing_is_said(
    there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}]}}"
    assert await explain(there, manifests(empty), ask=False) == 0
    assert capsys.readouterr().out == (
        'Pod "p", namespace default, LimitRanges: <none>\n\n'
        "No container asks for anything.\n\nNo LimitRange is against it.\n\n"
    )


async def test_the_server_has_the_last_word(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    await post_limits(server)
    # This one runs without LimitRanger.
    assert await explain(there, manifests(POD), ask=True) == 0
    assert capsys.readouterr().out.endswith("\n\nThe server would accept it.\n\n")
    broken = POD.replace("name: b", "name: B")
    assert await explain(there, manifests(broken), ask=True) == 1
    said = capsys.readouterr().out
    assert 'The Pod "web" is invalid: spec.containers[1].name: Invalid value: "B"' in said
    assert (await server.get("/api/v1/namespaces/default/pods"))["items"] == []


async def test_the_pods_of_workloads_are_explained(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    await post_limits(server)
    text = """
apiVersion: v1
kind: Service
metadata: {name: web}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: a, image: x, resources: {requests: {cpu: 3}}}]
"""
    assert await explain(there, manifests(text), ask=False) == 1
    out = capsys.readouterr().out
    assert "Service" not in out
    assert (
        "Its pods would be refused:\n"
        '* spec.containers[0].resources.requests: Invalid value: "3": must be less than or equal '
        'to cpu limit of 2 (LimitRange "limits")\n'
    ) in out


@pytest.mark.parametrize(
    ("pod", "error"),
    [
        (
            "{containers: [{name: a, resources: {limits: {cpu: 1x}}}]}",
            "quantities must match the regular expression",
        ),
        ("{container: []}", 'strict decoding error: unknown field "spec.container"'),
        ("{containers: a}", "cannot unmarshal string into Go struct field"),
    ],
)
async def test_what_the_server_could_not_read_is_refused_in_its_words(
    there: ApiSession, pod: str, error: str
) -> None:
    text = f"{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {pod}}}"
    with pytest.raises(ServerRefusal) as refusal:
        await explain(there, manifests(text), ask=False)
    start = (
        'Error from server (BadRequest): error when creating "pod.yaml": Pod in version "v1" '
        "cannot be handled as a Pod: "
    )
    assert str(refusal.value).startswith(start)
    assert error in str(refusal.value)


async def test_files_without_pods_are_a_mistake(there: ApiSession) -> None:
    with pytest.raises(Failure, match="the files hold none of them"):
        await explain(there, manifests("{apiVersion: v1, kind: Secret}"), ask=False)


EXISTING = """
apiVersion: v1
kind: LimitRange
metadata: {name: narrow}
spec: {limits: [{type: Container, max: {cpu: 500m}}]}
"""


async def test_running_pods_that_would_be_refused_are_listed(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    await post_limits(server)
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Mi"}}}
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [container]}}
    await server.post("/api/v1/namespaces/default/pods", pod)
    assert await explain_existing(there, []) == 0
    assert capsys.readouterr().out == (
        "Namespace default, LimitRanges: limits\n\nNo LimitRange is against a running pod.\n"
    )
    assert await explain_existing(there, manifests(EXISTING)) == 1
    heading, _, *table = capsys.readouterr().out.splitlines()
    assert heading == "Namespace default, LimitRanges: limits, narrow"
    assert [line.split(maxsplit=2) for line in table] == [
        ["POD", "LIMITRANGE", "VIOLATION"],
        ["web", "narrow", "maximum cpu usage per Container is 500m, but limit is 1"],
    ]
