"""Containers that are told of themselves: in variables, in files, and again when it changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kedge.machinery.quantity import Quantity

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Json, Kubectl

SAID = "/dev/termination-log"
RESOURCES = {
    "limits": {"cpu": "500m", "memory": "128Mi", "storage": "2Gi"},
    "requests": {"cpu": "250m", "memory": "64Mi", "storage": "1Gi"},
}
ROWS = {
    "limits.cpu": "512",
    "limits.memory": "134217728",
    "limits.storage": "2147483648",
    "limits.ephemeral-storage": "2147483648",
    "requests.cpu": "256",
    "requests.memory": "67108864",
    "requests.storage": "1073741824",
    "requests.ephemeral-storage": "1073741824",
}
KEY = "foo.bar/more'complicated]example[with'characters\"to-escape"
ESCAPED = r"""foo.bar/more\'complicated\]example\[with\'characters"to-escape"""


def field(path: str) -> Json:
    return {"fieldRef": {"fieldPath": path}}


def partial(path: str, spelling: str = "containerFieldRef") -> Json:
    return {spelling: {"fieldPath": path}}


def full(what: str, container: str = "main", among: str = "containers") -> Json:
    return field(f'.spec.{among}[?(@.name=="{container}")].resources.{what}')


def amount(what: str, container: str = "", divisor: str = "") -> Json:
    ref = {"resource": what, "containerName": container, "divisor": divisor}
    return {"resourceFieldRef": {name: value for name, value in ref.items() if value}}


def pod(
    script: str,
    *,
    env: dict[str, Json] | None = None,
    items: dict[str, Json] | None = None,
    **more: Any,
) -> Json:
    """A pod `told` whose container `main` runs the script; files are in /info."""
    container: Json = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", script],
        "env": [{"name": name, "valueFrom": source} for name, source in (env or {}).items()],
    }
    spec: Json = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    if items is not None:
        files = [{"path": path, **source} for path, source in items.items()]
        spec["volumes"] = [{"name": "info", "downwardAPI": {"items": files}}]
        container["volumeMounts"] = [{"name": "info", "mountPath": "/info"}]
    for name in ("resources", "resizePolicy"):
        if name in more:
            container[name] = more.pop(name)
    metadata = {"name": "told"} | more.pop("metadata", {})
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec | more}
    return document


class Pods:
    """Runs pods in a namespace of the test's own, and hears what they say in the end."""

    def __init__(self, api: Api, namespace: str, eventually: Callable[..., Any]) -> None:
        self.api = api
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.eventually = eventually

    def start(self, document: Json) -> Json:
        return self.api.create(self.path, document)

    @property
    def told(self) -> Json:
        return self.api.get(f"{self.path}/told")

    def running(self) -> None:
        self.eventually(lambda: self.told["status"].get("phase") == "Running")

    def waiting(self, reason: str) -> Json:
        (status,) = self.told["status"].get("containerStatuses") or [{}]
        state: Json = status.get("state", {}).get("waiting") or {}
        return state if state.get("reason") == reason else {}

    def again(self) -> None:
        """Make room for another pod of the name."""
        self.api.delete(f"{self.path}/told")
        self.eventually(lambda: not self.api.exists(f"{self.path}/told"))

    def said(self) -> str:
        def ended() -> Json | None:
            (status,) = self.told["status"].get("containerStatuses") or [{}]
            state: Json | None = status.get("state", {}).get("terminated")
            return state

        state: Json = self.eventually(ended)
        assert state["exitCode"] == 0, state
        return str(state.get("message", ""))

    def says(self, document: Json) -> str:
        self.start(document)
        return self.said()

    def variables(self, env: dict[str, Json], **more: Any) -> dict[str, str]:
        """What the variables of a container are, as it sees them itself."""
        names = " ".join(env)
        script = f'for n in {names}; do echo "$n=`printenv $n`"; done > {SAID}'
        text = self.says(pod(script, env=env, **more))
        return dict(line.partition("=")[::2] for line in text.splitlines())

    def files(self, items: dict[str, Json], **more: Any) -> dict[str, str]:
        """What the files of a volume hold, as a container reads them; an end is told from none."""
        shown = "; ".join(f"cat /info/{path}; echo '|'" for path in items)
        text = self.says(pod(f"({shown}) > {SAID}", items=items, **more))
        return dict(zip(items, text.split("|\n")[:-1], strict=True))


@pytest.fixture
def pods(api: Api, namespace: str, eventually: Callable[..., Any]) -> Pods:
    return Pods(api, namespace, eventually)


# Variables.


def test_variable_shows_every_field_that_kubernetes_shows(pods: Pods, api: Api) -> None:
    env = {
        "NAME": field("metadata.name"),
        "NAMESPACE": field("metadata.namespace"),
        "UID_": field("metadata.uid"),
        "NODE": field("spec.nodeName"),
        "HOST": field("spec.host"),
        "ACCOUNT": field("spec.serviceAccountName"),
        "HOST_IP": field("status.hostIP"),
        "HOST_IPS": field("status.hostIPs"),
        "POD_IP": field("status.podIP"),
        "POD_IPS": field("status.podIPs"),
        "LABEL": field("metadata.labels['app']"),
        "ANNOTATION": field("metadata.annotations['a.b/c']"),
        "MISSING": field("metadata.annotations['missing']"),
    }
    metadata = {"labels": {"app": "web"}, "annotations": {"a.b/c": "two words"}}
    found = pods.variables(env, metadata=metadata)
    told = pods.told
    meta, spec, status = told["metadata"], told["spec"], told["status"]
    assert found == {
        "NAME": "told",
        "NAMESPACE": meta["namespace"],
        "UID_": meta["uid"],
        "NODE": spec["nodeName"],
        "HOST": spec["nodeName"],
        "ACCOUNT": "default",
        "HOST_IP": status["hostIP"],
        "HOST_IPS": status["hostIP"],
        "POD_IP": status["podIP"],
        "POD_IPS": status["podIP"],
        "LABEL": "web",
        "ANNOTATION": "two words",
        "MISSING": "",
    }


def name_of(what: str) -> str:
    return what.upper().replace(".", "_").replace("-", "_")


def test_variable_shows_amounts_by_full_selectors(pods: Pods) -> None:
    env = {name_of(what): full(what) for what in ROWS}
    found = pods.variables(env, resources=RESOURCES)
    assert found == {name_of(what): value for what, value in ROWS.items()}


@pytest.mark.parametrize("spelling", ["containerFieldRef", "containerfieldRef"])
def test_variable_shows_amounts_by_partial_selectors(pods: Pods, spelling: str) -> None:
    env = {name_of(what): partial(f"resources.{what}", spelling) for what in ROWS}
    found = pods.variables(env, resources=RESOURCES)
    assert found == {name_of(what): value for what, value in ROWS.items()}


def test_variable_shows_amounts_in_the_unit_that_is_asked_for(pods: Pods) -> None:
    env = {
        "CPU": amount("limits.cpu"),
        "MILLI": amount("limits.cpu", divisor="1m"),
        "MEBI": amount("limits.memory", "main", "1Mi"),
        "BYTES": amount("requests.memory"),
    }
    found = pods.variables(env, resources=RESOURCES)
    assert found == {"CPU": "1", "MILLI": "500", "MEBI": "128", "BYTES": "67108864"}


def test_container_without_limits_is_limited_by_what_the_node_can_give(
    pods: Pods, api: Api
) -> None:
    env = {
        "CPU": amount("limits.cpu"),
        "SHARES": partial("resources.limits.cpu"),
        "MEMORY": full("limits.memory"),
        "STORAGE": full("limits.storage"),
        "REQUEST": partial("resources.requests.cpu"),
        "GPU": full("limits.example.com/gpu"),
    }
    found = pods.variables(env)
    node = api.get(f"/api/v1/nodes/{pods.told['spec']['nodeName']}")
    able = {name: Quantity.parse(text) for name, text in node["status"]["allocatable"].items()}
    assert found == {
        "CPU": str(able["cpu"].value()),
        "SHARES": str(able["cpu"].milli() * 1024 // 1000),
        "MEMORY": str(able["memory"].value()),
        "STORAGE": str(able["ephemeral-storage"].value()),
        "REQUEST": "0",
        "GPU": "0",
    }


def test_container_without_limits_is_limited_by_those_of_its_pod(pods: Pods) -> None:
    env = {"SHARES": full("limits.cpu"), "CPU": amount("limits.cpu", divisor="1m")}
    document = pod(f'echo "$SHARES $CPU" > {SAID}', env=env)
    document["spec"]["resources"] = {"limits": {"cpu": "300m", "memory": "64Mi"}}
    assert pods.says(document) == "307 300\n"


def test_annotation_whose_key_needs_escapes_is_shown(pods: Pods) -> None:
    metadata = {"annotations": {KEY: "7"}}
    env = {"INDEX": field(f"metadata.annotations['{ESCAPED}']")}
    assert pods.variables(env, metadata=metadata) == {"INDEX": "7"}


def test_container_that_is_not_there_keeps_the_other_from_starting(pods: Pods) -> None:
    pods.start(pod("true", env={"A": amount("limits.cpu", "nope")}))
    state = pods.eventually(lambda: pods.waiting("CreateContainerConfigError"))
    assert state["message"] == "container nope not found"


def test_pod_knows_where_its_node_is_and_no_more_than_it_may(pods: Pods, api: Api) -> None:
    (node,) = api.get("/api/v1/nodes")["items"]
    at = f"/api/v1/nodes/{node['metadata']['name']}"
    zone = "topology.kubernetes.io/zone"
    api.merge(at, {"metadata": {"labels": {zone: "z1", "example.com/rack": "7"}}})
    try:
        env = {
            "COPIED": field(f"metadata.labels['{zone}']"),
            "READ": field(f"node.metadata.labels['{zone}']"),
        }
        assert pods.variables(env) == {"COPIED": "z1", "READ": "z1"}
        pods.again()
        pods.start(pod("true", env={"RACK": field("node.metadata.labels['example.com/rack']")}))
        why = pods.eventually(lambda: pods.waiting("CreateContainerConfigError"))["message"]
        assert "--expose-node-labels=example.com/rack" in why
    finally:
        api.merge(at, {"metadata": {"labels": {zone: None, "example.com/rack": None}}})


# Files.


def test_file_shows_every_field_that_kubernetes_shows(pods: Pods) -> None:
    items = {
        "name": field("metadata.name"),
        "namespace": field("metadata.namespace"),
        "uid": field("metadata.uid"),
        "labels": field("metadata.labels"),
        "annotations": field("metadata.annotations"),
        "label": field("metadata.labels['b']"),
        "deep/annotation": field(f"metadata.annotations['{ESCAPED}']"),
    }
    metadata = {"labels": {"b": "2", "a": "1"}, "annotations": {KEY: "7", "k": 'x\n"é"\t'}}
    found = pods.files(items, metadata=metadata)
    meta = pods.told["metadata"]
    assert found == {
        "name": "told",
        "namespace": meta["namespace"],
        "uid": meta["uid"],
        "labels": 'a="1"\nb="2"',
        "annotations": f'{KEY}="7"\nk="x\\n\\"é\\"\\t"',
        "label": "2",
        "deep/annotation": "7",
    }


def test_file_shows_amounts_by_every_sort_of_selector(pods: Pods) -> None:
    items = {f"full-{what}": full(what) for what in ROWS}
    items |= {f"main/{what}": partial(f"resources.{what}") for what in ROWS}
    items |= {"milli": amount("limits.cpu", "main", "1m")}
    found = pods.files(items, resources=RESOURCES)
    expected = {f"full-{what}": value for what, value in ROWS.items()}
    expected |= {f"main/{what}": value for what, value in ROWS.items()}
    assert found == expected | {"milli": "500"}


def test_file_tells_of_any_container_of_the_pod(pods: Pods) -> None:
    items = {
        "init": full("requests.cpu", "first", "initContainers"),
        "first/cpu": partial("resources.requests.cpu"),
        "second/cpu": partial("resources.requests.cpu"),
        "other": full("requests.cpu", "second"),
    }
    document = pod(f"cd /info; cat init first/cpu second/cpu other > {SAID}", items=items)
    document["spec"]["initContainers"] = [
        {
            "name": "first",
            "image": "host",
            "command": ["true"],
            "resources": {"requests": {"cpu": "100m"}},
        }
    ]
    document["spec"]["containers"].append(
        {
            "name": "second",
            "image": "host",
            "command": ["true"],
            "resources": {"requests": {"cpu": "1m"}},
        }
    )
    pods.start(document)

    def message() -> str:
        statuses = pods.told["status"].get("containerStatuses") or []
        for status in statuses:
            if status["name"] == "main" and (state := status["state"].get("terminated")):
                return str(state.get("message", state))
        return ""

    assert pods.eventually(message) == "10210211"


def test_projected_volume_tells_the_same(pods: Pods) -> None:
    items = [
        {"path": "labels", **field("metadata.labels")},
        {"path": "full", **full("limits.cpu")},
        {"path": "main/partial", **partial("resources.limits.memory"), "mode": 0o400},
    ]
    volume = {
        "name": "info",
        "projected": {"defaultMode": 0o440, "sources": [{"downwardAPI": {"items": items}}]},
    }
    script = f"cd /info; (cat labels full main/partial; stat -L -c ' %a' full main/*) > {SAID}"
    document = pod(script, resources=RESOURCES, metadata={"labels": {"a": "1"}})
    document["spec"]["volumes"] = [volume]
    mount = {"name": "info", "mountPath": "/info"}
    document["spec"]["containers"][0]["volumeMounts"] = [mount]
    assert pods.says(document) == 'a="1"512134217728 440\n 400\n'


@pytest.mark.usefixtures("mounts")
def test_directory_is_laid_out_for_changes_all_at_once(pods: Pods) -> None:
    items = {"labels": field("metadata.labels"), "main/cpu": partial("resources.limits.cpu")}
    script = (
        f"cd /info; exec > {SAID}; readlink labels; readlink main; ls -A | grep -c '^\\.\\.20';"
        " test -d $(readlink ..data) && readlink ..data; stat -c %a $(readlink ..data);"
        " touch x 2>/dev/null || echo read-only; echo x 2>/dev/null > labels || echo read-only"
    )
    labels, main, directories, data, mode, *refusals = pods.says(
        pod(script, items=items, resources=RESOURCES)
    ).splitlines()
    assert (labels, main) == ("..data/labels", "..data/main")
    assert directories == "1"
    assert data.startswith("..20")
    assert mode == "755"
    assert refusals == ["read-only", "read-only"]


@pytest.mark.usefixtures("full_level")
def test_modes_and_the_group_of_files(pods: Pods) -> None:
    items = {"plain": field("metadata.name"), "own": {**field("metadata.name"), "mode": 0o400}}
    script = f"cd /info; stat -L -c '%a %g' plain own > {SAID}"
    assert pods.says(pod(script, items=items)) == "644 0\n400 0\n"
    pods.again()
    grouped = pod(script, items=items, securityContext={"fsGroup": 1234})
    grouped["spec"]["volumes"][0]["downwardAPI"]["defaultMode"] = 0o400
    assert pods.says(grouped) == "440 1234\n440 1234\n"


def test_file_about_a_container_that_is_not_there_is_told_in_events(
    pods: Pods, api: Api, namespace: str
) -> None:
    pods.start(pod("true", items={"f": amount("limits.cpu", "nope")}))

    def failures() -> list[str]:
        events = api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        return [each["message"] for each in events if each["reason"] == "FailedMount"]

    assert "container nope not found" in pods.eventually(failures)[0]


# Changes.

FOLLOW = f"""
while ! grep -q "$WANTED" /info/$FILE; do sleep 0.02; done
cat /info/$FILE > {SAID}
"""


def following(file: str, wanted: str, items: dict[str, Json], **more: Any) -> Json:
    return pod(f"FILE={file} WANTED='{wanted}'\n{FOLLOW}", items=items, **more)


@pytest.mark.parametrize("name", ["labels", "annotations"])
def test_file_follows_a_changed_map(pods: Pods, name: str) -> None:
    items = {"whole": field(f"metadata.{name}"), "one": field(f"metadata.{name}['turn']")}
    pods.start(following("one", "second", items, metadata={name: {"turn": "first"}}))
    pods.running()
    pods.api.merge(f"{pods.path}/told", {"metadata": {name: {"turn": "second"}}})
    assert pods.said() == "second"


def test_file_follows_a_resize_in_place(pods: Pods) -> None:
    items = {"main/cpu": partial("resources.limits.cpu"), "cpu": full("limits.cpu")}
    pods.start(following("main/cpu", "^768$", items, resources=RESOURCES))
    pods.running()
    container = {"name": "main", "resources": {"limits": {"cpu": "750m"}}}
    pods.api(
        "PATCH",
        f"{pods.path}/told/resize",
        {"spec": {"containers": [container]}},
        Content_Type="application/strategic-merge-patch+json",
    )
    assert pods.said() == "768"


def test_variable_stays_as_it_was_when_the_container_began(pods: Pods) -> None:
    items = {"one": field("metadata.labels['turn']")}
    document = following("one", "second", items, metadata={"labels": {"turn": "first"}})
    main = document["spec"]["containers"][0]
    main["env"] = [{"name": "TURN", "valueFrom": field("metadata.labels['turn']")}]
    main["command"][-1] += f'\necho " $TURN" >> {SAID}'
    pods.start(document)
    pods.running()
    pods.api.merge(f"{pods.path}/told", {"metadata": {"labels": {"turn": "second"}}})
    assert pods.said() == "second first\n"


# kubectl.


def test_kubectl_takes_and_explains_both_spellings(any_kubectl: Kubectl) -> None:
    for spelling in ("containerFieldRef", "containerfieldRef"):
        path = f"pod.spec.containers.env.valueFrom.{spelling}"
        assert "Kedge's own" in any_kubectl.says(f"explain {path}")
        document = pod("true", env={"A": partial("resources.limits.cpu", spelling)})
        text = yaml.safe_dump(document)
        done = any_kubectl("create", "--validate=strict", "-f", "-", input=text)
        assert "valueFrom.containerFieldRef: kedge extension" in done.stderr
        kept = any_kubectl.json("get pod told")["spec"]["containers"][0]["env"][0]
        assert list(kept["valueFrom"]) == ["containerFieldRef"]
        any_kubectl("delete pod told --now")


def test_kubectl_applies_the_same_selector_again_and_again(any_kubectl: Kubectl) -> None:
    document = pod("sleep 60", env={"A": partial("resources.limits.cpu", "containerfieldRef")})
    for flags in (("apply",), ("apply",), ("apply", "--server-side", "--force-conflicts")):
        any_kubectl(*flags, "-f", "-", input=json.dumps(document))
    (kept,) = any_kubectl.json("get pod told")["spec"]["containers"][0]["env"]
    ref = {"apiVersion": "v1", "fieldPath": "resources.limits.cpu"}
    assert kept["valueFrom"] == {"containerFieldRef": ref}


def test_kubectl_is_told_what_is_wrong_with_a_selector(any_kubectl: Kubectl) -> None:
    document = pod("true", env={"A": full("limits.cpu", "other")})
    complaint = any_kubectl.fails("create", "-f", "-", input=json.dumps(document))
    assert 'container "other" not found in spec.containers' in complaint
