import re
from typing import Any

import pytest

from kedge.api.pod_security.configuration import PodSecurityConfiguration, configuration_of
from kedge.api.pod_security.levels import LevelVersion, PodSecurityPolicy

HEAD = {
    "apiVersion": "pod-security.admission.config.k8s.io/v1",
    "kind": "PodSecurityConfiguration",
}


def test_a_configuration_is_read() -> None:
    found = configuration_of(
        HEAD
        | {
            "defaults": {"enforce": "baseline", "enforce-version": "v1.30", "warn": "restricted"},
            "exemptions": {"usernames": ["u"], "namespaces": ["n"], "runtimeClasses": ["r"]},
        }
    )
    policy = PodSecurityPolicy(
        LevelVersion("baseline", 30), LevelVersion("privileged"), LevelVersion("restricted")
    )
    assert found == PodSecurityConfiguration(
        policy, frozenset({"u"}), frozenset({"n"}), frozenset({"r"})
    )


def test_an_empty_configuration_allows_everything() -> None:
    assert configuration_of(HEAD) == PodSecurityConfiguration()


def test_the_published_configurations_are_read() -> None:
    modes = ("enforce", "audit", "warn")
    versions = {f"{mode}-version": "latest" for mode in modes}
    none: dict[str, list[str]] = {"usernames": [], "runtimeClasses": [], "namespaces": []}
    privileged = dict.fromkeys(modes, "privileged") | versions
    found = configuration_of(HEAD | {"defaults": privileged, "exemptions": none})
    assert found == PodSecurityConfiguration()
    cluster = {"enforce": "baseline", "audit": "restricted", "warn": "restricted"} | versions
    exempt = none | {"namespaces": ["kube-system"]}
    restricted = LevelVersion("restricted")
    policy = PodSecurityPolicy(LevelVersion("baseline"), restricted, restricted)
    assert configuration_of(HEAD | {"defaults": cluster, "exemptions": exempt}) == (
        PodSecurityConfiguration(policy, namespaces=frozenset({"kube-system"}))
    )


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"defaults": {"audit": "x"}}, 'defaults.audit: Invalid value: "x": must be one of'),
        ({"defaults": {"warn-version": "1"}}, "defaults.warn-version: Invalid value"),
        ({"defaults": {"enforced": "x"}}, "unknown field `enforced`"),
        ({"exemptions": {"namespaces": ["N"]}}, "exemptions.namespaces[0]: Invalid value"),
        ({"exemptions": {"usernames": ["", "a", "a"]}}, "username must not be empty"),
        ({"exemptions": {"usernames": ["a", "a"]}}, "exemptions.usernames[1]: Duplicate value"),
        ({"kind": "Other"}, "Other is not PodSecurityConfiguration"),
    ],
)
def test_a_bad_configuration_is_refused(part: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        configuration_of(HEAD | part)
