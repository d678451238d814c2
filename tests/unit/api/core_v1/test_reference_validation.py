"""What may be told to a pod of itself: every case, for kedge and for Kubernetes."""

from typing import Any

import pytest

from kedge.api.core_v1.pod.validation import validate
from kedge.machinery.extensions import sorted_out
from kedge.testing.pods import new_pod

F = "spec.containers[0].env[0].valueFrom.fieldRef"
V = "spec.volumes[0].downwardAPI"
SUPPORTED = (
    'supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",'
    ' "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"'
)
IN_FILES = (
    'supported values: "metadata.annotations", "metadata.labels", "metadata.name",'
    ' "metadata.namespace", "metadata.uid"'
)
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    " validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
SUBDOMAIN = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric"
    " characters, '-' or '.', and must start and end with an alphanumeric character (e.g."
    " 'example.com', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
).replace("\\\\", "\\")
FORM = (
    'selector must have the form spec.containers[?(@.name=="NAME")]'
    ".resources.{limits,requests}.RESOURCE"
)
PARTIAL = "selector must have the form resources.{limits,requests}.RESOURCE"
ONE = "may not have more than one field specified at a time"
BYTES = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"

CONTAINERS = {
    "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}],
    "initContainers": [{"name": "i", "image": "i"}],
}


def selector(name: str, what: str = "resources.limits.cpu") -> str:
    return f'.spec.containers[?(@.name=="{name}")].{what}'


def judged(*, upstream_only: bool = False, **parts: Any) -> tuple[list[str], list[str]]:
    """What is wrong with a pod, and what in it is an extension."""
    errors, used = sorted_out(validate(new_pod(**parts)), upstream_only=upstream_only)
    return [str(error) for error in errors], used


def variable(source: dict[str, Any], **options: Any) -> tuple[list[str], list[str]]:
    env = [{"name": "A", "valueFrom": source}]
    return judged(spec=CONTAINERS, container={"env": env}, **options)


def told(item: dict[str, Any], **options: Any) -> tuple[list[str], list[str]]:
    return judged(spec=CONTAINERS, volume={"downwardAPI": {"items": [item]}}, **options)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def unsupported(path: str) -> str:
    label = "field label not supported"
    return f"Invalid value: {quoted(path)}: error converting fieldPath: {label}: {path}"


# Fields of the pod.


@pytest.mark.parametrize("upstream_only", [False, True])
@pytest.mark.parametrize(
    "path",
    [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.host",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
        "metadata.labels['a']",
        "metadata.annotations['a.b/c']",
        "metadata.annotations['A.B/C']",
        "metadata.annotations['spec.pod.beta.kubernetes.io/statefulset-index']",
    ],
)
def test_variable_can_show_what_kubernetes_shows(path: str, upstream_only: bool) -> None:
    source = {"fieldRef": {"fieldPath": path}}
    assert variable(source, upstream_only=upstream_only) == ([], [])


@pytest.mark.parametrize("upstream_only", [False, True])
@pytest.mark.parametrize(
    ("path", "errors"),
    [
        ("metadata.labels['A.B/c']", [f'{F}: Invalid value: "A.B/c": {SUBDOMAIN}']),
        *(
            (path, [f'{F}.fieldPath: Unsupported value: "{path}": {SUPPORTED}'])
            for path in (
                "metadata.labels",
                "metadata.annotations",
                "status.phase",
                "spec.restartPolicy",
                "spec.schedulerName",
            )
        ),
        *(
            (path, [f"{F}.fieldPath: {unsupported(path)}"])
            for path in (
                "metadata.whoops",
                ".metadata.name",
                'metadata.annotations["a"]',
                "metadata.annotations[a]",
                "metadata.annotations['a'",
                "['a']",
            )
        ),
        *(
            (path, [f"{F}.fieldPath: {unsupported(path)}".replace("not supported", why)])
            for why in ("does not support subscript",)
            for path in ("metadata.name['k']", "spec.containers['c']")
        ),
        (
            "metadata.annotations['']",
            [
                f'{F}: Invalid value: "": name part must be non-empty',
                f'{F}: Invalid value: "": {QUALIFIED}',
            ],
        ),
        *(
            (f"metadata.annotations['{key}']", [f"{F}: Invalid value: {quoted(key)}: {QUALIFIED}"])
            for key in ("a[b]c", "a'b", "a\\'b[c", "a\\\\b", "a\\nb")
        ),
        ("", [f"{F}.fieldPath: Required value"]),
    ],
)
def test_variable_cannot_show_anything_else(
    path: str, errors: list[str], upstream_only: bool
) -> None:
    source = {"fieldRef": {"fieldPath": path}}
    assert variable(source, upstream_only=upstream_only) == (errors, [])


@pytest.mark.parametrize("path", ["metadata.name", selector("c"), "node.metadata.labels['a']"])
def test_only_version_v1_has_paths(path: str) -> None:
    errors, _ = variable({"fieldRef": {"apiVersion": "v1beta3", "fieldPath": path}})
    why = "error converting fieldPath: unsupported pod version: v1beta3"
    assert errors == [f"{F}.fieldPath: Invalid value: {quoted(path)}: {why}"]


@pytest.mark.parametrize("name", ["labels", "annotations"])
def test_key_with_escapes_is_an_extension(name: str) -> None:
    source = {"fieldRef": {"fieldPath": rf"metadata.{name}['a\'b\[c\]d']"}}
    assert variable(source) == ([], [F])
    raw = quoted(r"a\'b\[c\]d")
    assert variable(source, upstream_only=True) == ([f"{F}: Invalid value: {raw}: {QUALIFIED}"], [])


@pytest.mark.parametrize("key", ["\\'" + "a" * 317, "\\'\u0007"])
def test_key_with_escapes_is_neither_endless_nor_unprintable(key: str) -> None:
    errors, used = variable({"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}})
    assert errors[0].startswith(f"{F}: Invalid value: ")
    assert used == []


@pytest.mark.parametrize(
    ("path", "error"),
    [
        *((path, "") for path in IN_FILES.split('"')[1::2]),
        ("metadata.labels['a']", ""),
        *(
            (path, f'{V}.fieldRef.fieldPath: Unsupported value: "{path}": {IN_FILES}')
            for path in ("spec.nodeName", "spec.serviceAccountName", "status.podIP", "status.phase")
        ),
        ("metadata.whoops", f"{V}.fieldRef.fieldPath: {unsupported('metadata.whoops')}"),
        (
            "metadata.annotations['a[b']",
            f'{V}.fieldRef: Invalid value: "a[b": {QUALIFIED}',
        ),
    ],
)
def test_file_can_show_whole_maps_but_less_of_the_rest(path: str, error: str) -> None:
    errors, _ = told({"path": "f", "fieldRef": {"fieldPath": path}})
    assert errors == ([error] if error else [])


# Requests and limits, as Kubernetes has them.


@pytest.mark.parametrize(
    ("resource", "divisor", "why"),
    [
        *(("limits.cpu", good, "") for good in ("", "0", "1", "1m", "0.001")),
        *(
            ("limits.memory", good, "")
            for good in ("0", "1", "1k", "1000", "1M", "1E", "1Ki", "1024Ki", "1Ei")
        ),
        ("requests.ephemeral-storage", "1Gi", ""),
        ("requests.hugepages-foo", "1Mi", ""),
        *(
            (
                "limits.cpu",
                bad,
                "only divisor's values 1m and 1 are supported with the cpu resource",
            )
            for bad in ("100m", "2", "1k")
        ),
        *(
            (
                f"limits.{name}",
                bad,
                f"only divisor's values {BYTES} are supported with the {word} resource",
            )
            for name, word in (
                ("memory", "memory"),
                ("ephemeral-storage", "local ephemeral storage"),
                ("hugepages-2Mi", "hugepages"),
            )
            for bad in ("1048576", "2Mi", "1m")
        ),
    ],
)
def test_divisor_is_a_unit(resource: str, divisor: str, why: str) -> None:
    ref = {"resource": resource} | ({"divisor": divisor} if divisor else {})
    at = "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor"
    expected = [f'{at}: Invalid value: "{resource}": {why}'] if why else []
    assert variable({"resourceFieldRef": ref}) == (expected, [])
    at = f"{V}.resourceFieldRef.divisor"
    expected = [f'{at}: Invalid value: "{resource}": {why}'] if why else []
    item = {"path": "f", "resourceFieldRef": ref | {"containerName": "c"}}
    assert told(item) == (expected, [])


def test_amount_and_its_container_must_be_named() -> None:
    at = f"{V}.resourceFieldRef"
    assert told({"path": "f", "resourceFieldRef": {"resource": "limits.cpu"}}) == (
        [f"{at}.containerName: Required value"],
        [],
    )
    assert told({"path": "f", "resourceFieldRef": {"containerName": "c"}}) == (
        [f"{at}.resource: Required value"],
        [],
    )
    supported = ", ".join(
        f'"{bound}.{name}"'
        for bound in ("limits", "requests")
        for name in ("cpu", "ephemeral-storage", "memory")
    )
    ref = {"containerName": "nope", "resource": "limits.storage"}
    assert told({"path": "f", "resourceFieldRef": ref}) == (
        [f'{at}.resource: Unsupported value: "limits.storage": supported values: {supported}'],
        [],
    )


def test_container_of_an_amount_is_not_looked_for() -> None:
    ref = {"containerName": "nope", "resource": "limits.cpu"}
    assert told({"path": "f", "resourceFieldRef": ref}) == ([], [])


# Selectors, which are kedge's own.


@pytest.mark.parametrize(
    "resource",
    ["cpu", "memory", "storage", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"],
)
@pytest.mark.parametrize("bound", ["limits", "requests"])
def test_selector_is_an_extension_that_kubernetes_refuses(bound: str, resource: str) -> None:
    path = selector("c", f"resources.{bound}.{resource}")
    source = {"fieldRef": {"fieldPath": path}}
    assert variable(source) == ([], [f"{F}.fieldPath"])
    strict, _ = variable(source, upstream_only=True)
    assert strict == [f"{F}.fieldPath: {unsupported(path)}"]


WRONG_SELECTORS = [
    (selector("d"), 'selector must name the container it is used in ("c")'),
    (selector("nope"), 'container "nope" not found in spec.containers'),
    (selector("i"), 'container "i" not found in spec.containers'),
    (selector("c").replace("containers", "initContainers"), None),
    (".spec.containers[0].resources.limits.cpu", FORM),
    (".spec.containers[*].resources.limits.cpu", FORM),
    ('.spec.containers[?(@.image=="x")].resources.limits.cpu', FORM),
    (selector("c", "resources.limits"), FORM),
    (selector("c", "image"), FORM),
    (selector("c").replace('"c"', '"c'), FORM),
    (selector("c").replace(")]", ")"), FORM),
    (selector("c").replace(")]", "]"), FORM),
    (selector(""), FORM),
]


@pytest.mark.parametrize(("path", "why"), WRONG_SELECTORS)
def test_selector_in_a_variable_names_the_container_that_it_is_used_in(
    path: str, why: str | None
) -> None:
    source = {"fieldRef": {"fieldPath": path}}
    why = why or 'container "c" not found in spec.initContainers'
    errors, _ = variable(source)
    assert errors == [f"{F}.fieldPath: Invalid value: {quoted(path)}: {why}"]
    strict, _ = variable(source, upstream_only=True)
    assert strict == [f"{F}.fieldPath: {unsupported(path)}"]


def test_selector_of_an_unknown_resource_names_the_known_ones() -> None:
    errors, _ = variable({"fieldRef": {"fieldPath": selector("c", "resources.limits.gpu")}})
    known = '"cpu", "ephemeral-storage", "memory", "storage"'
    assert errors == [f'{F}.fieldPath: Unsupported value: "gpu": supported values: {known}']


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (selector("c"), ""),
        (selector("d"), ""),
        (selector("i").replace("containers", "initContainers"), ""),
        (selector("i"), 'container "i" not found in spec.containers'),
        (selector("nope"), 'container "nope" not found in spec.containers'),
        ("spec.containers[0].resources.limits.cpu", FORM),
    ],
)
def test_selector_in_a_file_names_any_container_of_the_pod(path: str, error: str) -> None:
    errors, used = told({"path": "f", "fieldRef": {"fieldPath": path}})
    at = f"{V}.fieldRef.fieldPath"
    assert errors == ([f"{at}: Invalid value: {quoted(path)}: {error}"] if error else [])
    assert used == [at]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("resources.limits.cpu", ""),
        (".resources.requests.storage", ""),
        ("resources.limits.example.com/gpu", ""),
        ("limits.cpu", PARTIAL),
        ("resources.limit.cpu", PARTIAL),
        ("resources.limits.cpu.x", PARTIAL),
        (selector("c"), PARTIAL),
    ],
)
def test_partial_selector_is_about_the_container(path: str, why: str) -> None:
    at = "spec.containers[0].env[0].valueFrom.containerFieldRef.fieldPath"
    errors, _ = variable({"containerFieldRef": {"fieldPath": path}})
    assert errors == ([f"{at}: Invalid value: {quoted(path)}: {why}"] if why else [])
    at = f"{V}.containerFieldRef.fieldPath"
    errors, _ = told({"path": "c/f", "containerFieldRef": {"fieldPath": path}})
    assert errors == ([f"{at}: Invalid value: {quoted(path)}: {why}"] if why else [])


def test_partial_selector_must_be_there_and_of_this_version() -> None:
    at = "spec.containers[0].env[0].valueFrom.containerFieldRef.fieldPath"
    assert variable({"containerFieldRef": {}})[0] == [f"{at}: Required value"]
    old = {"apiVersion": "v1beta3", "fieldPath": "resources.limits.cpu"}
    assert variable({"containerFieldRef": old})[0] == [
        f'{at}: Invalid value: "resources.limits.cpu": error converting fieldPath:'
        " unsupported pod version: v1beta3"
    ]
    known = '"cpu", "ephemeral-storage", "memory", "storage"'
    assert variable({"containerFieldRef": {"fieldPath": "resources.limits.gpu"}})[0] == [
        f'{at}: Unsupported value: "gpu": supported values: {known}'
    ]


RELATIVE = "must be a relative path"
NO_CLIMBING = "must not contain '..'"
CONTAINER_FILE = "must be of the form <container name>/<file>"


@pytest.mark.parametrize(
    ("path", "whys"),
    [
        ("c/f", []),
        ("i/f", []),
        ("d/deep/f", []),
        ("cpu_limit", [CONTAINER_FILE]),
        ("nope/cpu_limit", ['container "nope" not found in the pod']),
        ("container_name/cpu_limit", ['container "container_name" not found in the pod']),
        ("c/", [CONTAINER_FILE]),
        ("/c/x", [RELATIVE, CONTAINER_FILE]),
        ("c/../x", [NO_CLIMBING]),
    ],
)
def test_path_of_a_partial_selector_begins_with_the_container(path: str, whys: list[str]) -> None:
    item = {"path": path, "containerFieldRef": {"fieldPath": "resources.limits.cpu"}}
    errors, _ = told(item)
    assert errors == [f'{V}.path: Invalid value: "{path}": {why}' for why in whys]


FIELD = {"fieldPath": "metadata.name"}
AMOUNT = {"containerName": "c", "resource": "limits.cpu"}
PARTIAL_REF = {"fieldPath": "resources.limits.cpu"}


@pytest.mark.parametrize(
    "source",
    [
        {"fieldRef": FIELD, "containerFieldRef": PARTIAL_REF},
        {"resourceFieldRef": AMOUNT, "containerFieldRef": PARTIAL_REF},
        {
            "containerFieldRef": PARTIAL_REF,
            "containerfieldRef": {"apiVersion": "v1", "fieldPath": "resources.limits.memory"},
        },
    ],
)
def test_variable_has_one_source(source: dict[str, Any]) -> None:
    at = "spec.containers[0].env[0].valueFrom"
    assert variable(source)[0] == [f'{at}: Invalid value: "": {ONE}']


@pytest.mark.parametrize(
    ("refs", "error"),
    [
        ({}, "Required value: one of fieldRef and resourceFieldRef is required"),
        (
            {"fieldRef": FIELD, "resourceFieldRef": AMOUNT},
            'Invalid value: "resource": fieldRef and resourceFieldRef can not be specified'
            " simultaneously",
        ),
        (
            {"fieldRef": FIELD, "containerFieldRef": PARTIAL_REF},
            'Invalid value: "resource": fieldRef, resourceFieldRef and containerFieldRef are'
            " mutually exclusive",
        ),
        (
            {"fieldRef": FIELD, "resourceFieldRef": AMOUNT, "containerFieldRef": PARTIAL_REF},
            'Invalid value: "resource": fieldRef, resourceFieldRef and containerFieldRef are'
            " mutually exclusive",
        ),
    ],
)
def test_file_has_one_source(refs: dict[str, Any], error: str) -> None:
    assert told({"path": "c/f", **refs})[0] == [f"{V}: {error}"]


# Files.


@pytest.mark.parametrize(
    ("path", "whys"),
    [
        *((path, []) for path in ("a/b", "./a", "a/", "a//b", "a/..b")),
        ("/a", [RELATIVE]),
        ("../a", [NO_CLIMBING]),
        ("a/../b", [NO_CLIMBING]),
        ("..a", ["must not start with '..'"]),
        ("...", ["must not start with '..'"]),
        ("..", [NO_CLIMBING, "must not start with '..'"]),
    ],
)
def test_path_of_a_file_stays_in_its_volume(path: str, whys: list[str]) -> None:
    errors, _ = told({"path": path, "fieldRef": FIELD})
    assert errors == [f'{V}.path: Invalid value: "{path}": {why}' for why in whys]


def test_path_of_a_file_is_needed() -> None:
    assert told({"path": "", "fieldRef": FIELD})[0] == [f"{V}.path: Required value"]


def test_modes_are_octal_and_small() -> None:
    why = "Invalid value: 1000: must be a number between 0 and 0777 (octal), both inclusive"
    volume = {
        "downwardAPI": {
            "defaultMode": 1000,
            "items": [{"path": "f", "fieldRef": FIELD, "mode": 1000}],
        }
    }
    assert judged(volume=volume)[0] == [f"{V}.defaultMode: {why}", f"{V}.mode: {why}"]


def test_same_path_twice_is_a_conflict_only_in_projected_volumes() -> None:
    items = [{"path": "x", "fieldRef": FIELD}, {"path": "x", "fieldRef": FIELD}]
    assert judged(volume={"downwardAPI": {"items": items}}) == ([], [])
    sources = [{"downwardAPI": {"items": items}}]
    assert judged(volume={"projected": {"sources": sources}})[0] == [
        'spec.volumes[0].projected: Invalid value: "x": conflicting duplicate paths'
    ]


def test_projected_file_is_held_to_the_same_rules() -> None:
    at = "spec.volumes[0].projected.sources[0].downwardAPI"
    items = [
        {"path": "f", "containerFieldRef": PARTIAL_REF},
        {"path": "g", "fieldRef": {"fieldPath": selector("nope")}},
    ]
    errors, used = judged(volume={"projected": {"sources": [{"downwardAPI": {"items": items}}]}})
    assert errors == [
        f'{at}.path: Invalid value: "f": {CONTAINER_FILE}',
        f"{at}.fieldRef.fieldPath: Invalid value: {quoted(selector('nope'))}:"
        ' container "nope" not found in spec.containers',
    ]
    assert used == [f"{at}.fieldRef.fieldPath"]


def test_volume_that_only_kedge_takes_can_be_mounted() -> None:
    parts: dict[str, Any] = {
        "spec": CONTAINERS,
        "container": {"volumeMounts": [{"name": "vol", "mountPath": "/v"}]},
        "volume": {
            "downwardAPI": {"items": [{"path": "f", "fieldRef": {"fieldPath": selector("c")}}]}
        },
    }
    at = f"{V}.fieldRef.fieldPath"
    assert judged(**parts) == ([], [at])
    assert judged(**parts, upstream_only=True)[0] == [
        f"{at}: {unsupported(selector('c'))}",
        'spec.containers[0].volumeMounts[0].name: Not found: "vol"',
    ]


# Owners and nodes.


@pytest.mark.parametrize(
    "path",
    ["metadata.ownerReferences[?(@.controller==true)].name", "node.metadata.labels['a.b/c']"],
)
def test_owner_and_node_are_extensions(path: str) -> None:
    assert variable({"fieldRef": {"fieldPath": path}}) == ([], [f"{F}.fieldPath"])
    item = {"path": "f", "fieldRef": {"fieldPath": path}}
    assert told(item) == ([], [f"{V}.fieldRef.fieldPath"])


def test_whole_labels_of_the_node_are_for_files() -> None:
    ref = {"fieldPath": "node.metadata.labels"}
    assert told({"path": "f", "fieldRef": ref})[0] == []
    assert variable({"fieldRef": ref})[0] == [
        f'{F}.fieldPath: Invalid value: "node.metadata.labels": a variable shows one label:'
        " node.metadata.labels['KEY']"
    ]


def test_label_of_the_node_has_a_qualified_name() -> None:
    errors, _ = variable({"fieldRef": {"fieldPath": "node.metadata.labels['a b']"}})
    assert errors == [f'{F}: Invalid value: "a b": {QUALIFIED}']


# Storage.


def test_storage_of_a_container_is_an_extension() -> None:
    resources = {"limits": {"storage": "2Gi"}, "requests": {"storage": "1Gi"}}
    at = "spec.containers[0].resources"
    assert judged(container={"resources": resources}) == (
        [],
        [f"{at}.limits[storage]", f"{at}.requests[storage]"],
    )
    why = 'Invalid value: "storage": must be a standard resource for containers'
    assert judged(container={"resources": resources}, upstream_only=True)[0] == [
        f"{at}.limits[storage]: {why}",
        f"{at}.requests[storage]: {why}",
    ]


def test_storage_is_no_overhead() -> None:
    errors, _ = judged(spec=CONTAINERS | {"overhead": {"storage": "1Gi"}})
    assert errors == [
        'spec.overhead.limits[storage]: Invalid value: "storage": must be a standard resource for'
        " containers"
    ]
