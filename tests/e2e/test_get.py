"""`kubectl get` in all its output forms."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Kubectl

AGE = re.compile(r"\d+s")

POD = {
    "metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}},
    "spec": {"containers": [{"name": "main", "image": "nginx:1.27"}]},
}


@pytest.fixture
def config_maps(api: Api, namespace: str) -> None:
    for name, labels in (("beta", {"app": "x"}), ("alpha", {"app": "y"}), ("gamma", {})):
        api.create(
            f"/api/v1/namespaces/{namespace}/configmaps",
            {
                "metadata": {"name": name, "labels": labels | {"of": "test"}},
                "data": {"key": name, "size": str(len(name))},
            },
        )


@pytest.fixture
def pod(api: Api, namespace: str) -> None:
    api.create(f"/api/v1/namespaces/{namespace}/pods", POD)


def test_a_table_has_the_servers_columns(kubectl: Kubectl, config_maps: None) -> None:
    rows = kubectl.table("get configmaps -l of=test")
    assert [list(row) for row in rows] == [["NAME", "DATA", "AGE"]] * 3
    assert [(row["NAME"], row["DATA"]) for row in rows] == [
        ("alpha", "2"),
        ("beta", "2"),
        ("gamma", "2"),
    ]
    assert all(AGE.fullmatch(row["AGE"]) for row in rows)
    assert "NAME" not in kubectl.says("get cm --no-headers")


def test_wide_shows_the_columns_of_priority_one(kubectl: Kubectl, pod: None) -> None:
    (row,) = kubectl.table("get pods")
    assert {**row, "AGE": ""} == {
        "NAME": "web",
        "READY": "0/1",
        "STATUS": "Pending",
        "RESTARTS": "0",
        "AGE": "",
    }
    (row,) = kubectl.table("get pod web -o wide")
    wide = ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert list(row) == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", *wide]
    assert [row[name] for name in wide] == ["<none>"] * 4


def test_yaml_and_json_show_the_object_in_full(kubectl: Kubectl, pod: None) -> None:
    from_yaml = yaml.safe_load(kubectl("get pod web -o yaml").stdout)
    from_json = kubectl.json("get pod web")
    assert from_json == json.loads(json.dumps(from_yaml, default=str))
    assert (from_json["apiVersion"], from_json["kind"]) == ("v1", "Pod")
    assert from_json["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert from_json["spec"]["restartPolicy"] == "Always"
    assert (from_json["status"]["phase"], from_json["status"]["qosClass"]) == (
        "Pending",
        "BestEffort",
    )
    assert "managedFields" not in from_json["metadata"]
    managed = kubectl.json("get pod web --show-managed-fields")["metadata"]["managedFields"]
    assert {entry["operation"] for entry in managed} == {"Update"}


def test_a_list_is_a_list_in_json(kubectl: Kubectl, config_maps: None) -> None:
    listed = kubectl.json("get cm -l of=test")
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert [item["kind"] for item in listed["items"]] == ["ConfigMap"] * 3


def test_name_jsonpath_columns_and_template(kubectl: Kubectl, config_maps: None) -> None:
    assert kubectl.says("get cm -l of=test -o name").split() == [
        "configmap/alpha",
        "configmap/beta",
        "configmap/gamma",
    ]
    assert kubectl.says("get cm -l of=test -o jsonpath={.items[*].data.key}") == "alpha beta gamma"
    assert kubectl.table("get cm alpha -o custom-columns=WHO:.metadata.name,KEY:.data.key") == [
        {"WHO": "alpha", "KEY": "alpha"}
    ]
    template = "{{range .items}}{{.metadata.name}}={{.data.size}};{{end}}"
    assert kubectl.says("get", "cm", "-l=of=test", f"-o=go-template={template}") == (
        "alpha=5;beta=4;gamma=5;"
    )


def test_sorting(kubectl: Kubectl, config_maps: None) -> None:
    by_size = kubectl.table("get cm -l of=test --sort-by=.data.size")
    assert by_size[0]["NAME"] == "beta"
    created = kubectl.table("get cm -l of=test --sort-by=.metadata.creationTimestamp")
    assert {row["NAME"] for row in created} == {"alpha", "beta", "gamma"}


def test_labels_and_kinds_can_be_shown(kubectl: Kubectl, config_maps: None) -> None:
    rows = kubectl.table("get cm -l of=test --show-labels")
    assert [row["LABELS"] for row in rows] == ["app=y,of=test", "app=x,of=test", "of=test"]
    rows = kubectl.table("get cm -l of=test -L app --show-kind")
    assert [(row["NAME"], row["APP"]) for row in rows] == [
        ("configmap/alpha", "y"),
        ("configmap/beta", "x"),
        ("configmap/gamma", ""),
    ]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("app=x", ["beta"]),
        ("app!=x", ["alpha", "gamma"]),
        ("app", ["alpha", "beta"]),
        ("!app", ["gamma"]),
        ("app in (x,y)", ["alpha", "beta"]),
        ("app notin (x)", ["alpha", "gamma"]),
    ],
)
def test_label_selectors(
    any_kubectl: Kubectl, config_maps: None, selector: str, chosen: list[str]
) -> None:
    said = any_kubectl.says("get", "cm", "-o=name", "-l", f"of=test,{selector}")
    assert said.split() == [f"configmap/{name}" for name in chosen]


def test_field_selectors(kubectl: Kubectl, pod: None, config_maps: None) -> None:
    assert kubectl.says("get cm -o name --field-selector metadata.name=beta") == "configmap/beta"
    assert kubectl.says("get pods -o name --field-selector status.phase=Pending") == "pod/web"
    assert kubectl.says("get pods -o name --field-selector status.phase!=Pending") == ""
    assert kubectl.says("get pods -o name --field-selector spec.nodeName=") == "pod/web"
    refused = kubectl.fails("get pods --field-selector spec.hostname=x")
    assert refused == (
        'Error from server (BadRequest): Unable to find "/v1, Resource=pods" that match label'
        ' selector "", field selector "spec.hostname=x": field label not supported: spec.hostname\n'
    )
    refused = kubectl.fails("get", "cm", "-l", "a=b=c")
    assert "found '=', expected: ',' or 'end of string'" in refused


def test_all_namespaces(kubectl: Kubectl, pod: None) -> None:
    rows = kubectl.table("get pods -A -l app=web,tier=front")
    assert list(rows[0])[:2] == ["NAMESPACE", "NAME"]
    assert kubectl.namespace in [row["NAMESPACE"] for row in rows]


def test_nothing_there(kubectl: Kubectl) -> None:
    done = kubectl("get pods")
    assert done.stdout == ""
    assert done.stderr == f"No resources found in {kubectl.namespace} namespace.\n"
    assert kubectl.fails("get pod ghost") == (
        'Error from server (NotFound): pods "ghost" not found\n'
    )
    assert kubectl("get pod ghost --ignore-not-found").stdout == ""
    assert kubectl.fails("get deployment ghost") == (
        'Error from server (NotFound): deployments.apps "ghost" not found\n'
    )
    assert kubectl.fails("get unicorns") == (
        'error: the server doesn\'t have a resource type "unicorns"\n'
    )


def test_get_all(kubectl: Kubectl, pod: None) -> None:
    kubectl("create service clusterip web --tcp=80")
    kubectl("create deployment none --image=nginx --replicas=0")
    names = set(kubectl.says("get all -o name").split())
    assert {"pod/web", "service/web", "deployment.apps/none"} <= names
    text = kubectl("get all").stdout
    first, second = (part.splitlines() for part in text.split("\n\n")[:2])
    assert first[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert first[1].startswith("pod/web ")
    columns = ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    assert second[0].split() == columns


def test_several_kinds_and_names_at_once(kubectl: Kubectl, pod: None, config_maps: None) -> None:
    names = kubectl.says("get pods,cm -l app -o name").split()
    assert names == ["pod/web", "configmap/alpha", "configmap/beta"]
    assert kubectl.says("get pod/web cm/alpha -o name").split() == ["pod/web", "configmap/alpha"]


def test_watching_shows_every_change(kubectl: Kubectl, api: Api, config_maps: None) -> None:
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps/alpha"
    with kubectl.start("get cm alpha -w --output-watch-events") as lines:
        assert lines.next().split() == ["EVENT", "NAME", "DATA", "AGE"]
        assert lines.next().split()[:3] == ["ADDED", "alpha", "2"]
        api.merge(path, {"data": {"more": "x"}})
        assert lines.next().split()[:3] == ["MODIFIED", "alpha", "3"]
        api.delete(path)
        assert lines.next().split()[:3] == ["DELETED", "alpha", "3"]


def test_watching_only_leaves_out_what_is_there(
    kubectl: Kubectl, api: Api, config_maps: None
) -> None:
    with kubectl.start("get cm -l of=test --watch-only -o name -v=6") as lines:
        lines.until("watch=true")
        api.merge(
            f"/api/v1/namespaces/{kubectl.namespace}/configmaps/gamma", {"data": {"size": "9"}}
        )
        assert lines.until("configmap/") == "configmap/gamma"


def test_chunks_make_a_whole(kubectl: Kubectl, config_maps: None) -> None:
    shown = kubectl("get cm -l of=test --chunk-size=1 -o name -v=6")
    assert shown.stdout.split() == ["configmap/alpha", "configmap/beta", "configmap/gamma"]
    assert shown.stderr.count("limit=1") >= 3
    assert len(kubectl.table("get cm -l of=test --chunk-size=2")) == 3


def test_raw_paths(kubectl: Kubectl, config_maps: None) -> None:
    assert kubectl.says("get --raw /readyz") == "ok"
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps?labelSelector=app%3Dx"
    listed = json.loads(kubectl.says("get", "--raw", path))
    assert listed["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["beta"]
    assert "(NotFound)" in kubectl.fails("get --raw /api/v1/namespaces/none/pods/none")
    checks = kubectl.says("get --raw /readyz?verbose")
    assert "[+]ping ok" in checks
    assert "[+]autoregister-completion ok" in checks
    assert "apiserver_request_total" in kubectl.says("get --raw /metrics")


def test_a_subresource_is_shown(kubectl: Kubectl) -> None:
    kubectl("create deployment web --image=nginx --replicas=0")
    (row,) = kubectl.table("get deployment web --subresource=scale")
    assert {**row, "AGE": ""} == {"NAME": "web", "DESIRED": "0", "AVAILABLE": "0", "AGE": ""}
    assert kubectl.json("get deployment web --subresource=status")["kind"] == "Deployment"


COLUMNS = {
    "nodes": "NAME STATUS ROLES AGE VERSION",
    "namespaces": "NAME STATUS AGE",
    "serviceaccounts": "NAME AGE",
    "secrets": "NAME TYPE DATA AGE",
    "services": "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE",
    "endpoints": "NAME ENDPOINTS AGE",
    "limitranges": "NAME",
    "resourcequotas": "NAME REQUEST LIMIT AGE",
    "persistentvolumeclaims": (
        "NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE"
    ),
    "persistentvolumes": (
        "NAME CAPACITY ACCESS MODES RECLAIM POLICY STATUS CLAIM STORAGECLASS"
        " VOLUMEATTRIBUTESCLASS REASON AGE"
    ),
    "replicationcontrollers": "NAME DESIRED CURRENT READY AGE",
    "deployments": "NAME READY UP-TO-DATE AVAILABLE AGE",
    "replicasets": "NAME DESIRED CURRENT READY AGE",
    "statefulsets": "NAME READY AGE",
    "daemonsets": "NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE",
    "jobs": "NAME STATUS COMPLETIONS DURATION AGE",
    "cronjobs": "NAME SCHEDULE TIMEZONE SUSPEND ACTIVE LAST SCHEDULE AGE",
    "horizontalpodautoscalers": "NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE",
    "leases": "NAME HOLDER AGE",
    "priorityclasses": "NAME VALUE GLOBAL-DEFAULT AGE PREEMPTIONPOLICY",
    "rolebindings": "NAME ROLE AGE",
    "clusterrolebindings": "NAME ROLE AGE",
    "roles": "NAME CREATED AT",
    "ingresses": "NAME CLASS HOSTS ADDRESS PORTS AGE",
    "networkpolicies": "NAME POD-SELECTOR AGE",
    "storageclasses": ("NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE"),
    "poddisruptionbudgets": "NAME MIN AVAILABLE MAX UNAVAILABLE ALLOWED DISRUPTIONS AGE",
    "endpointslices": "NAME ADDRESSTYPE PORTS ENDPOINTS AGE",
    "customresourcedefinitions": "NAME CREATED AT",
    "events": "LAST SEEN TYPE REASON OBJECT MESSAGE",
}


@pytest.fixture(scope="session")
def table_columns(api: Api) -> dict[str, str]:
    """The columns that `kubectl get` would show for each kind, asked in the way it asks."""
    groups = api.get("/apis")["groups"]
    paths = ["/api/v1", *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups)]
    shown: dict[str, str] = {}
    for path in paths:
        for resource in api.get(path)["resources"]:
            if "list" in resource["verbs"] and resource["name"] in COLUMNS:
                accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
                told = api("GET", f"{path}/{resource['name']}?limit=1", Accept=accept)
                columns = [c for c in told["columnDefinitions"] if c["priority"] == 0]
                # Of several groups that have such a kind, kubectl means the first.
                shown.setdefault(resource["name"], " ".join(c["name"].upper() for c in columns))
    return shown


@pytest.mark.parametrize("plural", COLUMNS)
def test_columns_of(plural: str, table_columns: dict[str, str]) -> None:
    assert table_columns[plural] == COLUMNS[plural]


def test_deprecated_kinds_are_warned_of(kubectl: Kubectl) -> None:
    assert kubectl("get endpoints").stderr.splitlines()[0] == (
        "Warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    )
    assert kubectl("get componentstatuses").stderr.splitlines()[0] == (
        "Warning: v1 ComponentStatus is deprecated in v1.19+"
    )
