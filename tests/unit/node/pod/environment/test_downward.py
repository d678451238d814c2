"""What pods are told of themselves: upstream's paths, amounts and formats."""

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.references import ObjectFieldSelector, ResourceFieldSelector
from kedge.api.core_v1.volume.projection import DownwardAPIVolumeFile
from kedge.machinery.quantity import Quantity
from kedge.node.pod.environment import downward
from kedge.node.pod.environment.downward import DownwardContext, UnresolvableField

AROUND = DownwardContext(
    pod_ips=["10.0.0.1", "fd00::1"],
    host_ips=["192.0.2.1"],
    allocatable={
        "cpu": Quantity.parse("4"),
        "memory": Quantity.parse("8Gi"),
        "ephemeral-storage": Quantity.parse("10Gi"),
    },
    node_labels={
        "topology.kubernetes.io/zone": "z1",
        "topology.kubernetes.io/region": "r1",
        "example.com/rack": "7",
        "secret": "s",
    },
)


def pod(**spec: object) -> Pod:
    full = {
        "requests": {"cpu": "250m", "memory": "32Mi", "ephemeral-storage": "1Gi"},
        "limits": {
            "cpu": "1250m",
            "memory": "64Mi",
            "ephemeral-storage": "2Gi",
            "hugepages-2Mi": "4Mi",
        },
    }
    document = {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "labels": {"b": "2", "a": "1", "app": "x y"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "box", "uid": "n"},
                {
                    "apiVersion": "apps/v1",
                    "kind": "StatefulSet",
                    "name": "web",
                    "uid": "s",
                    "controller": True,
                },
            ],
            "annotations": {"k": 'line1\nline2\t"q" \\ é \x01'},
        },
        "spec": {
            "nodeName": "box",
            "serviceAccountName": "sa",
            "containers": [
                {"name": "full", "image": "i", "resources": full},
                {"name": "bare", "image": "i"},
            ],
            "initContainers": [{"name": "init", "image": "i"}],
            **spec,
        },
    }
    return RESOURCE.from_document(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['none']", ""),
        ("metadata.labels", 'a="1"\napp="x y"\nb="2"'),
        ("metadata.annotations", 'k="line1\\nline2\\t\\"q\\" \\\\ é \\x01"'),
        ("spec.nodeName", "box"),
        ("spec.host", "box"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "192.0.2.1"),
        ("status.hostIPs", "192.0.2.1"),
        ("status.podIP", "10.0.0.1"),
        ("status.podIPs", "10.0.0.1,fd00::1"),
    ],
)
def test_fields_read_as_upstream_reads_them(path: str, value: str) -> None:
    assert downward.field(pod(), path, AROUND) == value


def test_unknown_field_is_no_silent_emptiness() -> None:
    with pytest.raises(UnresolvableField, match=r"status\.phase"):
        downward.field(pod(), "status.phase", AROUND)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u200b", '"\\u200b"'),
        ("\U000e0001", '"\\U000e0001"'),
        ("\x7f", '"\\x7f"'),
        ("\u00a0", '"\\u00a0"'),
        ("日本", '"日本"'),
    ],
)
def test_what_cannot_be_printed_is_spelled_out(text: str, expected: str) -> None:
    assert downward.quoted(text) == expected


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", "", "2"),
        ("limits.cpu", "1m", "1250"),
        ("requests.cpu", "", "1"),
        ("requests.cpu", "1m", "250"),
        ("limits.memory", "", "67108864"),
        ("limits.memory", "1Mi", "64"),
        ("limits.memory", "1k", "67109"),
        ("limits.memory", "1M", "68"),
        ("limits.memory", "1Gi", "1"),
        ("limits.ephemeral-storage", "1Gi", "2"),
        ("limits.hugepages-2Mi", "", "4194304"),
        ("limits.hugepages-1Gi", "", "0"),
    ],
)
def test_amounts_are_divided_and_rounded_up(resource: str, divisor: str, value: str) -> None:
    amount = Quantity.parse(divisor or "0")
    selector = ResourceFieldSelector(containerName="full", resource=resource, divisor=amount)
    subject = pod()
    own = subject.spec.containers[1]
    assert downward.resource_of_variable(subject, own, selector, AROUND) == value
    assert downward.resource_of_file(subject, selector, AROUND) == value


def test_variable_without_a_container_name_is_about_its_own() -> None:
    subject = pod()
    selector = ResourceFieldSelector(resource="limits.cpu")
    for container, value in zip(subject.spec.containers, ("2", "4"), strict=True):
        assert downward.resource_of_variable(subject, container, selector, AROUND) == value


def test_no_limit_is_what_the_node_can_give_and_no_request_is_nothing() -> None:
    subject = pod()
    for resource, value in (("limits.memory", "8589934592"), ("requests.memory", "0")):
        selector = ResourceFieldSelector(containerName="bare", resource=resource)
        assert downward.resource_of_file(subject, selector, AROUND) == value


def test_pods_own_limit_comes_before_the_nodes_for_variables_only() -> None:
    subject = pod(resources={"limits": {"cpu": "3"}})
    selector = ResourceFieldSelector(containerName="bare", resource="limits.cpu")
    own = subject.spec.containers[0]
    assert downward.resource_of_variable(subject, own, selector, AROUND) == "3"
    assert downward.resource_of_file(subject, selector, AROUND) == "4"


def test_init_container_that_is_named_has_no_default() -> None:
    subject = pod()
    selector = ResourceFieldSelector(containerName="init", resource="limits.cpu")
    own = subject.spec.containers[0]
    assert downward.resource_of_variable(subject, own, selector, AROUND) == "0"


def test_container_that_is_not_there_is_named() -> None:
    selector = ResourceFieldSelector(containerName="nope", resource="limits.cpu")
    with pytest.raises(UnresolvableField, match="container nope not found"):
        downward.resource_of_file(pod(), selector, AROUND)


# What is kedge's own; its output has tests of its own, named after the proposal.


def selector(name: str, what: str = "limits.cpu", among: str = "containers") -> str:
    return f'spec.{among}[?(@.name=="{name}")].resources.{what}'


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (selector("full"), "1280"),
        (selector("full", "requests.cpu"), "256"),
        (selector("bare"), "4096"),
        (selector("bare", "requests.memory"), "0"),
        (selector("init", among="initContainers"), "4096"),
    ],
)
def test_full_selector_tells_shares_with_the_same_defaults_for_all(path: str, value: str) -> None:
    assert downward.field(pod(), path, AROUND) == value


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (selector("nope"), "container nope not found"),
        (selector("init"), "container init not found"),
        ("spec.containers[0].resources.limits.cpu", "unsupported fieldPath"),
    ],
)
def test_selector_that_leads_nowhere_is_no_silent_emptiness(path: str, why: str) -> None:
    with pytest.raises(UnresolvableField, match=why):
        downward.field(pod(), path, AROUND)


def test_file_of_a_partial_selector_is_about_the_container_its_path_begins_with() -> None:
    ref = ObjectFieldSelector(fieldPath="resources.limits.memory")
    for path, value in (
        ("full/a", "67108864"),
        ("bare/deep/b", "8589934592"),
        ("init/c", "8589934592"),
    ):
        item = DownwardAPIVolumeFile(path=path, containerFieldRef=ref)
        assert downward.file(pod(), item, AROUND) == value


def test_owner_is_the_one_that_controls_the_pod() -> None:
    path = "metadata.ownerReferences[?(@.controller==true)]"
    found = [
        downward.field(pod(), f"{path}.{each}", AROUND)
        for each in ("apiVersion", "kind", "name", "uid")
    ]
    assert found == ["apps/v1", "StatefulSet", "web", "s"]


def test_pod_of_nobody_has_no_owner() -> None:
    path = "metadata.ownerReferences[?(@.controller==true)].name"
    assert downward.field(Pod(), path, AROUND) == ""


def test_node_shows_its_place_and_what_the_operator_lets_it_show() -> None:
    def label(key: str, around: DownwardContext = AROUND) -> str:
        return downward.field(pod(), f"node.metadata.labels['{key}']", around)

    assert label("topology.kubernetes.io/zone") == "z1"
    with pytest.raises(UnresolvableField, match=r"--expose-node-labels=example\.com/rack"):
        label("example.com/rack")
    exposed = replace(AROUND, exposed=["example.com/*"])
    assert label("example.com/rack", exposed) == "7"
    assert label("example.com/none", exposed) == ""
    assert downward.field(pod(), "node.metadata.labels", exposed) == (
        'example.com/rack="7"\ntopology.kubernetes.io/region="r1"\ntopology.kubernetes.io/zone="z1"'
    )
