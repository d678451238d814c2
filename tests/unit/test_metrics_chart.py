"""The chart of examples/aggregated-metrics, and the manifests that were rendered of it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.catalog import BUILT_IN
from kedge.metrics_server.config import SERVICE

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "aggregated-metrics"
HELM = shutil.which("helm") or str(ROOT / ".venv" / "helm" / "helm")
needs_helm = pytest.mark.skipif(
    not Path(HELM).exists(), reason="no helm: tools/setup helm fetches it"
)


def rendered(*flags: str, namespace: str = "kube-system") -> str:
    command = [HELM, "template", "kedge-metrics", str(EXAMPLE / "chart"), "-n", namespace]
    return subprocess.run([*command, *flags], check=True, capture_output=True, text=True).stdout


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


PLAIN = documents((EXAMPLE / "deployment.yaml").read_text())


@needs_helm
def test_the_manifests_are_what_the_chart_renders() -> None:
    """Write them again with the command of the README, if this fails."""
    values = f"--values={EXAMPLE / 'plain-values.yaml'}"
    assert rendered(values) == (EXAMPLE / "deployment.yaml").read_text()


@needs_helm
def test_a_generated_certificate_is_trusted_by_the_api_services() -> None:
    made = documents(rendered("--set=image.repository=kedge", namespace="usage"))
    secret = next(each for each in made if each["kind"] == "Secret")
    bundles = {each["spec"]["caBundle"] for each in made if each["kind"] == "APIService"}
    assert bundles == {secret["data"]["ca.crt"]}


@needs_helm
@pytest.mark.parametrize("flag", ["", "--set=image.repository=a,tls.generate=false"])
def test_missing_values_are_named(flag: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        rendered(*([flag] if flag else []))
    assert "is required" in caught.value.stderr


@needs_helm
def test_the_group_of_metrics_server_can_be_left_to_it() -> None:
    made = documents(rendered("--set=image.repository=kedge,metricsK8sIO=false,replicas=2"))
    services = [each["metadata"]["name"] for each in made if each["kind"] == "APIService"]
    assert services == ["v1alpha1.metrics"]
    assert "PodDisruptionBudget" in [each["kind"] for each in made]


@needs_helm
def test_one_server_at_a_time_writes_the_windows_of_a_claim() -> None:
    flag = "--set=image.repository=kedge,state.claimName=usage"
    made = documents(rendered(flag))
    deployment = next(each for each in made if each["kind"] == "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    with pytest.raises(subprocess.CalledProcessError) as caught:
        rendered(f"{flag},replicas=2")
    assert "is for one replica" in caught.value.stderr


def test_the_manifests_are_valid() -> None:
    known = {(each.api_version, each.kind): each for each in BUILT_IN}
    for document in PLAIN:
        resource = known[document["apiVersion"], document["kind"]]
        if document["kind"] == "APIService":
            document = {**document, "spec": {**document["spec"], "caBundle": "UEVN"}}
        strategy = resource.strategy
        obj = strategy.default(resource.from_document(document))
        assert list(strategy.validate(obj)) == [], document["metadata"]["name"]


def test_they_install_the_service_whose_name_is_in_the_certificate() -> None:
    service = next(each for each in PLAIN if each["kind"] == "Service")
    meta = service["metadata"]
    assert f"{meta['name']}.{meta['namespace']}.svc" in SERVICE
    selector = service["spec"]["selector"]
    deployment = next(each for each in PLAIN if each["kind"] == "Deployment")
    assert deployment["spec"]["template"]["metadata"]["labels"] == selector


def test_permissions_are_those_of_a_server_outside_of_the_cluster() -> None:
    outside = documents((EXAMPLE / "access.yaml").read_text())
    roles = [each for each in outside if each["kind"] == "ClusterRole"]
    rules = {each["metadata"]["name"]: each["rules"] for each in roles}
    for document in PLAIN:
        if document["kind"] == "ClusterRole":
            assert document["rules"] == rules[document["metadata"]["name"]]
