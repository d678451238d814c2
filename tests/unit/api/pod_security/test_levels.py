import pytest

from kedge.api.pod_security.levels import (
    LevelVersion,
    PodSecurityPolicy,
    policy_of,
    version_problem,
)

P = "pod-security.kubernetes.io/"
NOTHING = PodSecurityPolicy()
BAD_LEVEL = "must be one of privileged, baseline, restricted"


def said(**labels: str) -> tuple[str, str, str]:
    read = policy_of({P + k.replace("_", "-"): v for k, v in labels.items()}, NOTHING).policy
    return str(read.enforce), str(read.audit), str(read.warn)


def test_a_namespace_without_labels_has_the_defaults() -> None:
    defaults = PodSecurityPolicy(warn=LevelVersion("baseline", 30))
    assert policy_of({}, defaults) == (defaults, ())
    assert said() == ("privileged:latest",) * 3


def test_labels_name_level_and_version() -> None:
    assert said(enforce="baseline", enforce_version="v1.99", audit="restricted") == (
        "baseline:v1.99",
        "restricted:latest",
        "baseline:v1.99",
    )


def test_warnings_follow_a_stricter_enforced_level_unless_they_have_their_own() -> None:
    assert said(enforce="restricted", warn="baseline")[2] == "baseline:latest"
    assert said(enforce="restricted", warn_version="v1.20")[2] == "restricted:v1.20"
    defaults = PodSecurityPolicy(warn=LevelVersion("restricted"))
    assert str(policy_of({f"{P}enforce": "baseline"}, defaults).policy.warn) == "restricted:latest"


def test_a_level_that_cannot_be_read_enforces_the_strictest() -> None:
    read = policy_of({f"{P}{mode}": "xx" for mode in ("enforce", "audit", "warn")}, NOTHING)
    assert [level.level for level in read.policy] == ["restricted", "privileged", "privileged"]
    assert [str(error) for error in read.errors] == [
        f'metadata.labels[{P}{mode}]: Invalid value: "xx": {BAD_LEVEL}'
        for mode in ("enforce", "audit", "warn")
    ]


@pytest.mark.parametrize("text", ["latest", "v1.0", "v1.36", "v1.999999"])
def test_versions(text: str) -> None:
    assert version_problem(text) == ""


@pytest.mark.parametrize("text", ["", "1.3", "v1.01", "v2.0", "v1.", "v1.99999999999999999999"])
def test_bad_versions(text: str) -> None:
    assert version_problem(text) == 'must be "latest" or "v1.x"'


def test_two_privileged_levels_are_alike_in_any_version() -> None:
    assert LevelVersion("privileged", 3).is_like(LevelVersion("privileged"))
    assert not LevelVersion("baseline", 3).is_like(LevelVersion("baseline"))
