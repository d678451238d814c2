"""Downward APIs for resource limits and requests: every row, example and rule of the proposal.

Each pod is really posted; what its containers and files are told is then worked out as on a node.
"""

from typing import Any

import pytest
import yaml

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.volume.projection import DownwardAPIProjection, DownwardAPIVolumeSource
from kedge.machinery.quantity import Quantity
from kedge.node.pod.environment import downward
from kedge.node.pod.environment.downward import DownwardContext
from kedge.testing.local_server import MERGE, STRATEGIC, LocalAnswer, LocalServer

PODS = "/api/v1/namespaces/default/pods"
NODE = DownwardContext(
    allocatable={
        name: Quantity.parse(amount)
        for name, amount in (("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "10Gi"))
    }
)
RESOURCES = {
    "limits": {"cpu": "500m", "memory": "128Mi", "storage": "2Gi"},
    "requests": {"cpu": "250m", "memory": "64Mi", "storage": "1Gi"},
}
ROWS = [
    ("CPU_LIMIT", "limits.cpu", "512"),
    ("MEMORY_LIMIT", "limits.memory", "134217728"),
    ("STORAGE_LIMIT", "limits.storage", "2147483648"),
    ("CPU_REQUEST", "requests.cpu", "256"),
    ("MEMORY_REQUEST", "requests.memory", "67108864"),
    ("STORAGE_REQUEST", "requests.storage", "1073741824"),
]
IDS = [name for name, _, _ in ROWS]
FULL = '.spec.containers[?(@.name=="container-name")].resources.'


def extension(*paths: str) -> list[str]:
    return [f'299 - "{path}: kedge extension, not portable to other clusters"' for path in paths]


STORAGE = extension(
    *(f"spec.containers[0].resources.{bound}[storage]" for bound in ("limits", "requests"))
)


def pod(*, env: Any = None, items: Any = None, projected: bool = False) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "container-name", "image": "busybox"}
    container["resources"] = RESOURCES
    spec: dict[str, Any] = {"containers": [container]}
    if env is not None:
        container["env"] = [env]
    if items is not None:
        container["volumeMounts"] = [{"name": "podinfo", "mountPath": "/etc/podinfo"}]
        files = {"items": items}
        source = {"downwardAPI": files}
        volume = {"projected": {"sources": [source]}} if projected else source
        spec["volumes"] = [{"name": "podinfo", **volume}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def variables(document: dict[str, Any]) -> dict[str, str | None]:
    """What the first container of a stored pod is told."""
    stored: Pod = RESOURCE.from_document(document)
    own = stored.spec.containers[0]
    return {
        each.name: downward.variable(stored, own, each.valueFrom, NODE)
        for each in own.env
        if each.valueFrom is not None
    }


def files(document: dict[str, Any]) -> dict[str, str | None]:
    """What the volumes of a stored pod hold."""
    stored: Pod = RESOURCE.from_document(document)
    sources: list[DownwardAPIVolumeSource | DownwardAPIProjection | None] = []
    sources += [volume.downwardAPI for volume in stored.spec.volumes]
    for volume in stored.spec.volumes:
        if volume.projected is not None:
            sources += [part.downwardAPI for part in volume.projected.sources]
    items = [item for source in sources if source is not None for item in source.items]
    return {item.path: downward.file(stored, item, NODE) for item in items}


# API with full json path selectors.


@pytest.mark.parametrize(("name", "what", "value"), ROWS, ids=IDS)
async def test_full_selector_as_an_environment_variable(
    server: LocalServer, name: str, what: str, value: str
) -> None:
    variable = {"name": name, "valueFrom": {"fieldRef": {"fieldPath": FULL + what}}}
    answer = await server.call("POST", PODS, pod(env=variable))
    assert answer.status == 201, answer.text
    assert variables(answer.document) == {name: value}
    at = "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"
    assert answer.warnings == [*extension(at), *STORAGE]


# The proposal's table repeats limits.cpu in every row, which is a slip of the pen.
@pytest.mark.parametrize("projected", [False, True], ids=["downwardAPI", "projected"])
@pytest.mark.parametrize(("name", "what", "value"), ROWS, ids=IDS)
async def test_full_selector_as_a_file(
    server: LocalServer, name: str, what: str, value: str, projected: bool
) -> None:
    item = {"path": name.lower(), "fieldRef": {"fieldPath": FULL + what}}
    answer = await server.call("POST", PODS, pod(items=[item], projected=projected))
    assert answer.status == 201, answer.text
    assert files(answer.document) == {name.lower(): value}
    part = "projected.sources[0].downwardAPI" if projected else "downwardAPI"
    at = f"spec.volumes[0].{part}.fieldRef.fieldPath"
    assert answer.warnings == [*extension(at), *STORAGE]


async def test_version_of_a_selector_defaults_to_that_of_the_pod(server: LocalServer) -> None:
    variable = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": f"{FULL}limits.cpu"}}}
    made = await server.post(PODS, pod(env=variable))
    (kept,) = made["spec"]["containers"][0]["env"]
    assert kept["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


async def test_names_of_variables_and_files_are_free(server: LocalServer) -> None:
    ref = {"fieldPath": f"{FULL}limits.cpu"}
    variable = {"name": "anything.I-like", "valueFrom": {"fieldRef": ref}}
    made = await server.post(
        PODS, pod(env=variable, items=[{"path": "some/where", "fieldRef": ref}])
    )
    assert variables(made) == {"anything.I-like": "512"}
    assert files(made) == {"some/where": "512"}


FULL_VARIABLE = """
apiVersion: v1
kind: Pod
metadata:
  name: dapi-test-pod
spec:
  containers:
    - name: test-container
      image: gcr.io/google_containers/busybox
      command: [ "/bin/sh", "-c", "env" ]
      env:
        - name: CPU_LIMIT
          valueFrom:
            fieldRef:
              fieldPath: .spec.containers[?(@.name=="container-name")].resources.limits.cpu
  restartPolicy: Never
"""

FULL_FILE = """
apiVersion: v1
kind: Pod
metadata:
  name: kubernetes-downwardapi-volume-example
spec:
  containers:
    - name: client-container
      image: gcr.io/google_containers/busybox
      command: ["sh", "-c", "while true; do if [[ -e /etc/labels ]]; then cat /etc/labels; fi; if [[ -e /etc/annotations ]]; then cat /etc/annotations; fi; sleep 5; done"]
      volumeMounts:
        - name: podinfo
          mountPath: /etc
          readOnly: false
  volumes:
    - name: podinfo
      downwardAPI:
        items:
          - path: "cpu_limit"
            fieldRef:
              fieldPath: .spec.containers[?(@.name=="container-name")].resources.limits.cpu
"""  # noqa: E501

PARTIAL_VARIABLE = FULL_VARIABLE.replace("fieldRef:", "containerFieldRef:").replace(
    '.spec.containers[?(@.name=="container-name")].', ""
)
PARTIAL_FILE = (
    FULL_FILE.replace("fieldRef:", "containerFieldRef:")
    .replace('.spec.containers[?(@.name=="container-name")].', "")
    .replace('"cpu_limit"', '"container_name/cpu_limit"')
)


async def posted(server: LocalServer, text: str) -> LocalAnswer:
    return await server.call("POST", PODS, yaml.safe_load(text))


async def test_example_of_a_full_selector_in_a_variable(server: LocalServer) -> None:
    literal = await posted(server, FULL_VARIABLE)
    assert literal.status == 422
    assert 'container "container-name" not found in spec.containers' in literal.message
    right = await posted(server, FULL_VARIABLE.replace("container-name", "test-container"))
    assert variables(right.document) == {"CPU_LIMIT": "4096"}


async def test_example_of_a_full_selector_in_a_file(server: LocalServer) -> None:
    literal = await posted(server, FULL_FILE)
    assert literal.status == 422
    assert 'container "container-name" not found in spec.containers' in literal.message
    right = await posted(server, FULL_FILE.replace("container-name", "client-container"))
    assert files(right.document) == {"cpu_limit": "4096"}


# API with partial json path selectors.


@pytest.mark.parametrize("spelling", ["containerFieldRef", "containerfieldRef"])
@pytest.mark.parametrize(("name", "what", "value"), ROWS, ids=IDS)
async def test_partial_selector_as_an_environment_variable(
    server: LocalServer, name: str, what: str, value: str, spelling: str
) -> None:
    ref = {"fieldPath": f"resources.{what}"}
    answer = await server.call("POST", PODS, pod(env={"name": name, "valueFrom": {spelling: ref}}))
    assert answer.status == 201, answer.text
    assert variables(answer.document) == {name: value}
    (kept,) = answer.document["spec"]["containers"][0]["env"]
    assert kept["valueFrom"] == {"containerFieldRef": {"apiVersion": "v1", **ref}}
    at = "spec.containers[0].env[0].valueFrom.containerFieldRef"
    assert answer.warnings == [*extension(at), *STORAGE]


# The proposal's table has requests.memory in the last row, which is another slip.
@pytest.mark.parametrize("projected", [False, True], ids=["downwardAPI", "projected"])
@pytest.mark.parametrize("spelling", ["containerFieldRef", "containerfieldRef"])
@pytest.mark.parametrize(("name", "what", "value"), ROWS, ids=IDS)
async def test_partial_selector_as_a_file(
    server: LocalServer, name: str, what: str, value: str, spelling: str, projected: bool
) -> None:
    path = f"container-name/{name.lower()}"
    item = {"path": path, spelling: {"fieldPath": f"resources.{what}"}}
    answer = await server.call("POST", PODS, pod(items=[item], projected=projected))
    assert answer.status == 201, answer.text
    assert files(answer.document) == {path: value}
    part = "projected.sources[0].downwardAPI" if projected else "downwardAPI"
    at = f"spec.volumes[0].{part}.items[0].containerFieldRef"
    assert answer.warnings == [*extension(at), *STORAGE]


async def test_example_of_a_partial_selector_in_a_variable(server: LocalServer) -> None:
    made = await posted(server, PARTIAL_VARIABLE)
    assert variables(made.document) == {"CPU_LIMIT": "4096"}


async def test_example_of_a_partial_selector_in_a_file(server: LocalServer) -> None:
    literal = await posted(server, PARTIAL_FILE)
    assert literal.status == 422
    assert literal.message.endswith(
        'spec.volumes[0].downwardAPI.path: Invalid value: "container_name/cpu_limit":'
        ' container "container_name" not found in the pod,'
        ' spec.containers[0].volumeMounts[0].name: Not found: "podinfo"]'
    )
    right = await posted(server, PARTIAL_FILE.replace("container_name", "client-container"))
    assert files(right.document) == {"client-container/cpu_limit": "4096"}


async def test_both_spellings_may_say_the_same_and_nothing_else(server: LocalServer) -> None:
    ref = {"fieldPath": "resources.limits.cpu"}
    source = {"containerFieldRef": ref, "containerfieldRef": ref}
    made = await server.post(PODS, pod(env={"name": "A", "valueFrom": source}))
    assert variables(made) == {"A": "512"}
    source = {
        "containerFieldRef": ref,
        "containerfieldRef": {"fieldPath": "resources.limits.memory"},
    }
    answer = await server.call("POST", PODS, pod(env={"name": "A", "valueFrom": source}))
    assert answer.status == 422
    assert answer.message.endswith(
        'spec.containers[0].env[0].valueFrom: Invalid value: "":'
        " may not have more than one field specified at a time"
    )


async def test_apply_owns_the_spelling_that_is_stored(server: LocalServer) -> None:
    ref = {"fieldPath": "resources.limits.cpu", "apiVersion": "v1"}
    document = pod(env={"name": "A", "valueFrom": {"containerfieldRef": ref}})
    for _ in range(2):
        answer = await server.apply(f"{PODS}/p?fieldManager=me", document)
        assert answer.status in (200, 201), answer.text
        (kept,) = answer.document["spec"]["containers"][0]["env"]
        assert kept["valueFrom"] == {"containerFieldRef": ref}


@pytest.mark.parametrize("sort", [MERGE, STRATEGIC])
async def test_patch_may_spell_what_is_stored_otherwise(server: LocalServer, sort: str) -> None:
    def template(what: str) -> dict[str, Any]:
        ref = {"fieldPath": f"resources.{what}"}
        spec = pod(env={"name": "A", "valueFrom": {"containerfieldRef": ref}})["spec"]
        return {"spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}}

    url = "/apis/apps/v1/namespaces/default/deployments"
    document = template("limits.cpu") | {"metadata": {"name": "web"}}
    document["spec"]["selector"] = {"matchLabels": {"a": "b"}}
    await server.post(url, document)
    answer = await server.call("PATCH", f"{url}/web", template("limits.memory"), content_type=sort)
    assert answer.status == 200, answer.text
    (kept,) = answer.document["spec"]["template"]["spec"]["containers"][0]["env"]
    assert kept["valueFrom"] == {
        "containerFieldRef": {"apiVersion": "v1", "fieldPath": "resources.limits.memory"}
    }


@pytest.mark.parametrize("name", ["EnvVarSource", "DownwardAPIVolumeFile"])
async def test_both_spellings_are_published(server: LocalServer, name: str) -> None:
    page = await server.get("/openapi/v3/api/v1")
    published = page["components"]["schemas"][f"io.k8s.api.core.v1.{name}"]["properties"]
    assert {"containerFieldRef", "containerfieldRef"} <= published.keys()


# Output format.


@pytest.mark.parametrize(
    ("cpu", "shares"),
    [
        ("250m", "256"),
        ("500m", "512"),
        ("1", "1024"),
        ("1250m", "1280"),
        ("100m", "102"),
        ("150m", "153"),
        ("333m", "340"),
        ("1m", "1"),
        ("2", "2048"),
        (None, "0"),
    ],
)
def test_output_of_cpu_is_shares(cpu: str | None, shares: str) -> None:
    assert output("requests.cpu", {"requests": {"cpu": cpu}} if cpu else {}) == shares


@pytest.mark.parametrize(
    ("what", "amount", "value"),
    [
        ("memory", "64Mi", "67108864"),
        ("memory", "64M", "64000000"),
        ("memory", "1.1Mi", "1153434"),
        ("storage", "2Gi", "2147483648"),
        ("ephemeral-storage", "2Gi", "2147483648"),
        ("hugepages-2Mi", "4Mi", "4194304"),
        ("example.com/gpu", "3", "3"),
    ],
)
def test_output_of_everything_else_is_bytes_or_units(what: str, amount: str, value: str) -> None:
    for bound in ("limits", "requests"):
        assert output(f"{bound}.{what}", {bound: {what: amount}}) == value


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("cpu", "4096"),
        ("memory", "8589934592"),
        ("storage", "10737418240"),
        ("ephemeral-storage", "10737418240"),
        ("hugepages-2Mi", "0"),
        ("example.com/gpu", "0"),
    ],
)
def test_output_of_no_limit_is_what_the_node_can_give(what: str, value: str) -> None:
    assert output(f"limits.{what}", {}) == value


def test_output_of_no_limit_is_the_limit_of_the_pod_if_it_has_one() -> None:
    whole = {"limits": {"cpu": "2", "memory": "1Gi"}}
    assert output("limits.cpu", {}, whole) == "2048"
    assert output("limits.memory", {}, whole) == "1073741824"


def test_output_of_storage_is_ephemeral_storage_where_nothing_else_is_said() -> None:
    assert output("limits.storage", {"limits": {"ephemeral-storage": "1Gi"}}) == "1073741824"


def output(what: str, resources: dict[str, Any], whole: dict[str, Any] | None = None) -> str:
    """What both forms of selector say, as variables and as files."""
    container = {"name": "container-name", "image": "i", "resources": resources}
    spec = {"containers": [container]} | ({"resources": whole} if whole else {})
    subject: Pod = RESOURCE.from_document({"metadata": {"name": "p"}, "spec": spec})
    own = subject.spec.containers[0]
    full = downward.field(subject, f"{FULL}{what}", NODE)
    partial = downward.container_field(subject, own, f"resources.{what}", NODE)
    assert full == partial
    return full


# Validations.


async def test_validation_1_full_selector_is_valid_and_names_the_current_container(
    server: LocalServer,
) -> None:
    document = pod(env={"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "?"}}})
    container = document["spec"]["containers"][0]
    document["spec"]["containers"].append({"name": "other", "image": "i"})
    good = f"{FULL}limits.cpu"
    refused = {
        good.replace("containers", "container"): "field label not supported",
        good.replace("resources", "resource"): "selector must have the form",
        good.replace("cpu", "speed"): 'Unsupported value: "speed"',
        good.replace("container-name", "nobody"): 'container "nobody" not found',
        good.replace("container-name", "other"): "must name the container it is used in",
    }
    for path, why in refused.items():
        container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] = path
        answer = await server.call("POST", PODS, document)
        assert answer.status == 422, path
        assert why in answer.message
    container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] = good
    assert (await server.call("POST", PODS, document)).status == 201


async def test_validation_2_partial_selector_is_valid_and_the_path_names_a_container(
    server: LocalServer,
) -> None:
    def document(path: str, field: str) -> dict[str, Any]:
        return pod(items=[{"path": path, "containerFieldRef": {"fieldPath": field}}])

    refused = [
        ("container-name/f", "limits.cpu", "selector must have the form resources."),
        ("container-name/f", "resources.limits.speed", 'Unsupported value: "speed"'),
        ("f", "resources.limits.cpu", "must be of the form <container name>/<file>"),
        ("nobody/f", "resources.limits.cpu", 'container "nobody" not found in the pod'),
    ]
    for path, field, why in refused:
        answer = await server.call("POST", PODS, document(path, field))
        assert answer.status == 422
        assert why in answer.message
    good = document("container-name/f", "resources.limits.cpu")
    assert (await server.call("POST", PODS, good)).status == 201


async def test_all_errors_are_told_at_once(server: LocalServer) -> None:
    document = pod(
        env={"name": "A", "valueFrom": {"fieldRef": {"fieldPath": f"{FULL}limits.speed"}}},
        items=[{"path": "f", "containerFieldRef": {"fieldPath": "limits.cpu"}}],
    )
    answer = await server.call("POST", PODS, document)
    assert [cause["field"] for cause in answer.document["details"]["causes"]] == [
        "spec.volumes[0].downwardAPI.containerFieldRef.fieldPath",
        "spec.volumes[0].downwardAPI.path",
        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath",
        "spec.containers[0].volumeMounts[0].name",
    ]


# Where only Kubernetes' own counts.


async def test_upstream_knows_no_full_selectors(strict: LocalServer) -> None:
    right = FULL_VARIABLE.replace("container-name", "test-container")
    answer = await posted(strict, right)
    path = '.spec.containers[?(@.name=="test-container")].resources.limits.cpu'
    shown = path.replace('"', '\\"')
    assert (answer.status, answer.warnings) == (422, [])
    at = "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath"
    assert answer.message.endswith(
        f'is invalid: {at}: Invalid value: "{shown}":'
        f" error converting fieldPath: field label not supported: {path}"
    )


async def test_upstream_knows_no_partial_selectors(strict: LocalServer) -> None:
    field = "spec.containers[0].env[0].valueFrom.containerFieldRef"
    answer = await strict.call(
        "POST", f"{PODS}?fieldValidation=Strict", yaml.safe_load(PARTIAL_VARIABLE)
    )
    assert answer.status == 400
    assert f'unknown field "{field}"' in answer.message
    pruned = await posted(strict, PARTIAL_VARIABLE)
    assert pruned.status == 422
    assert "must specify one of: `fieldRef`, `resourceFieldRef`" in pruned.message


async def test_upstream_containers_have_no_storage(strict: LocalServer) -> None:
    answer = await strict.call("POST", PODS, pod())
    assert answer.status == 422
    why = 'Invalid value: "storage": must be a standard resource for containers'
    assert f"spec.containers[0].resources.limits[storage]: {why}" in answer.message


async def test_pod_with_a_selector_that_was_stored_before_can_still_be_labelled(
    server: LocalServer,
) -> None:
    right = FULL_VARIABLE.replace("container-name", "test-container")
    await posted(server, right)
    async with LocalServer.running(server.store, upstream_only=True) as later:
        labelled = await later.merge(f"{PODS}/dapi-test-pod", {"metadata": {"labels": {"a": "b"}}})
        assert labelled["metadata"]["labels"] == {"a": "b"}


# Storage, which upstream's containers cannot ask for.


async def test_storage_is_ephemeral_storage_to_nodes_and_quotas(server: LocalServer) -> None:
    made = await server.post(PODS, pod())
    resources = made["spec"]["containers"][0]["resources"]
    assert resources["limits"]["ephemeral-storage"] == resources["limits"]["storage"] == "2Gi"
    assert resources["requests"]["ephemeral-storage"] == "1Gi"
