"""Every kind that can be created goes through a whole life with kubectl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Kubectl

Manifest = dict[str, Any]

TEXT = Path(__file__).with_name("manifests").joinpath("minimal.yaml").read_text()
MANIFESTS: dict[str, Manifest] = {
    f"{manifest['kind']}.{manifest['apiVersion']}": manifest
    for manifest in yaml.safe_load_all(TEXT)
}
ANSWERED_NOT_STORED = {"authentication.k8s.io/v1", "authorization.k8s.io/v1"}


def written_for(namespace: str, manifest: Manifest) -> Manifest:
    text = json.dumps(manifest).replace("NAMESPACE", namespace).replace("ADDRESS", "10.9.8.8")
    filled: Manifest = json.loads(text)
    filled.setdefault("metadata", {}).setdefault("name", f"{namespace}-one")
    return filled


def test_no_kind_is_left_out(api: Api) -> None:
    groups = api.get("/apis")["groups"]
    versions = ["v1", *(g["preferredVersion"]["groupVersion"] for g in groups)]
    served = set()
    for version in versions:
        if version in ANSWERED_NOT_STORED or version.partition("/")[0].endswith(".example.com"):
            continue
        root = "/api" if version == "v1" else "/apis"
        for resource in api.get(f"{root}/{version}")["resources"]:
            if "/" not in resource["name"] and {"create", "get"} <= set(resource["verbs"]):
                served.add(f"{resource['kind']}.{version}")
    assert served == set(MANIFESTS)


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_whole_life(any_kubectl: Kubectl, kind: str) -> None:
    kubectl = any_kubectl
    manifest = written_for(kubectl.namespace, MANIFESTS[kind])
    name = manifest["metadata"]["name"]
    group, _, version = manifest["apiVersion"].rpartition("/")
    what = f"{manifest['kind'].lower()}.{version}.{group}" if group else manifest["kind"].lower()

    said = kubectl.says("create", "-f", "-", "-o=name", input=json.dumps(manifest))
    assert said.endswith(f"/{name}")
    stored = kubectl.json("get", what, name)
    assert (stored["apiVersion"], stored["kind"]) == (manifest["apiVersion"], manifest["kind"])
    shown = kubectl("get", what, name).stdout.splitlines()
    assert len(shown) == 2

    selector = f"--field-selector=metadata.name={name}"
    with kubectl.start("get", what, "-w", "--output-watch-events", selector) as lines:
        assert lines.until("EVENT ").split()[0] == "EVENT"
        assert lines.next().split()[0] == "ADDED"
        patch = '{"metadata": {"labels": {"patched": "yes"}}}'
        assert "patched" in kubectl.says("patch", what, name, "--type=merge", "-p", patch)
        assert lines.next().split()[0] == "MODIFIED"

        manifest["metadata"]["labels"] = {"applied": "yes"}
        applied = kubectl.json(
            "apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(manifest)
        )
        labels = applied["metadata"]["labels"]
        assert (labels["patched"], labels["applied"]) == ("yes", "yes")
        assert applied["metadata"]["uid"] == stored["metadata"]["uid"]

        kubectl("delete", what, name, "--wait=false")
        while lines.next().split()[0] != "DELETED":
            pass
