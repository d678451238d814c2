import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.pod_security.levels import LevelVersion, minor_of
from kedge.api.pod_security.standards import NEWEST, STANDARDS, details, reasons, violations

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "standards.yaml").read_text())
PUBLISHED: list[dict[str, Any]] = yaml.safe_load((HERE / "published_standards.yaml").read_text())
NAMES = {"containers": "c", "initContainers": "i", "ephemeralContainers": "e", "volumes": "v"}


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


def restricted_pod() -> dict[str, Any]:
    """The spec of a pod that keeps every standard, with a container of each sort."""
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec: dict[str, Any] = {
        name: [{"name": NAMES[name], "securityContext": copy.deepcopy(context)}]
        for name in ("initContainers", "containers", "ephemeralContainers")
    }
    profile = {"type": "RuntimeDefault"}
    spec["securityContext"] = {"runAsNonRoot": True, "seccompProfile": profile, "sysctls": []}
    return spec


def put(spec: dict[str, Any], under: str, field: str, value: Any) -> None:
    """Set a field of the pod, of one of its containers, of a volume or of a sysctl."""
    if under == "volumes":
        spec["volumes"] = [{"name": "v", field: value}]
    elif under == "sysctls":
        spec["securityContext"]["sysctls"] = [{field: value}]
    else:
        at = spec if under == "spec" else spec[under][0]
        *parents, last = field.split(".")
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value


def said_of(row: dict[str, Any], under: str, field: str, value: Any) -> str:
    spec = restricted_pod()
    if field == "ports.hostPort" and value is not None:
        put(spec, under, "ports", [{"hostPort": value}])
    elif value is not None:
        put(spec, under, field, value)
    pod = RESOURCE.from_document({"metadata": {}, "spec": spec})
    return details(violations(LevelVersion(row["level"]), {}, pod.spec))


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["control"])
def test_published_controls(row: dict[str, Any]) -> None:
    for under in row["under"]:
        who = f'container "{NAMES[under]}"' if under.endswith("ontainers") else "pod"
        for field in row["fields"]:
            for value in row["allowed"]:
                assert said_of(row, under, field, value) == "", (under, field, value)
            if "refused" in row:
                found = said_of(row, under, field, row["refused"])
                assert found == row["said"].replace("{who}", who), (under, field)


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
