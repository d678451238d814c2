from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.pod_security.levels import LevelVersion, minor_of
from kedge.api.pod_security.standards import NEWEST, STANDARDS, details, reasons, violations

CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("standards.yaml").read_text())


def pod_of(case: dict[str, Any]) -> Pod:
    spec = {"containers": [{"name": "c"} | case.get("container", {})]} | case.get("spec", {})
    metadata = {"annotations": case.get("annotations", {})}
    return RESOURCE.from_document({"metadata": metadata, "spec": spec})


@pytest.mark.parametrize("case", CASES)
def test_a_pod_breaks_the_rules_of_a_level(case: dict[str, Any]) -> None:
    level, _, version = case["level"].partition(":")
    pod = pod_of(case)
    found = violations(LevelVersion(level, minor_of(version)), pod.metadata.annotations, pod.spec)
    assert details(found) == case.get("said", "")


def test_reasons_leave_out_the_details() -> None:
    pod = pod_of(
        {"spec": {"hostPID": True}, "container": {"securityContext": {"privileged": True}}}
    )
    found = violations(LevelVersion("baseline"), {}, pod.spec)
    assert reasons(found) == "host namespaces, privileged"


def test_every_check_has_a_case() -> None:
    """A check that never fires is not tested."""
    said = " ".join(case.get("said", "") for case in CASES)
    assert all(
        text in said
        for text in ("sysctls", "hostPort", "hostPath volumes", "hostProcess", "runAsUser=0")
    )
    assert len(STANDARDS) == 19


def test_a_version_of_the_future_is_the_latest() -> None:
    pod = pod_of({})
    latest = violations(LevelVersion("restricted"), {}, pod.spec)
    assert violations(LevelVersion("restricted", 99), {}, pod.spec) == latest
    assert violations(LevelVersion("restricted", NEWEST), {}, pod.spec) == latest
