"""Mapping: which names mean the machine, or another image."""

import pytest

from kedge.node.images.mapping import ImageMapping, InvalidMappingRule, is_host
from kedge.node.images.reference import ImageReference

DIGEST = "sha256:" + "a1" * 32


def target(rules: list[str], name: str) -> str | None:
    found = ImageMapping.parse(rules).target(ImageReference.parse(name))
    return found.familiar if found else None


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("busybox:*", "busybox", True),
        ("busybox:*", "busybox:1.36", True),
        ("busybox:*", "docker.io/library/busybox:1.36", True),
        ("busybox:*", "quay.io/busybox:1", False),
        ("busybox:*", f"busybox@{DIGEST}", False),
        ("busybox", "busybox:1.36", True),
        ("busybox", f"busybox@{DIGEST}", True),
        ("busybox:1.36", "busybox:1.35", False),
        ("registry.k8s.io/*", "registry.k8s.io/e2e-test-images/agnhost:2.53", True),
        (
            "registry.k8s.io/e2e-test-images/agnhost",
            "registry.k8s.io/e2e-test-images/agnhost",
            True,
        ),
        ("localhost:5000/app", "localhost:5000/app:3", True),
        ("docker.io/library/*", "nginx", True),
        ("nginx", "me/nginx", False),
        ("*", f"quay.io/a/b:1@{DIGEST}", True),
    ],
)
def test_a_pattern_fits_both_spellings_of_a_name(pattern: str, name: str, fits: bool) -> None:
    assert (target([f"{pattern}=host"], name) == "host:latest") is fits


def test_the_first_rule_that_fits_counts_and_targets_are_not_mapped_again() -> None:
    rules = ["nginx:1=me/web:2", "nginx=host", "me/*=host"]
    assert target(rules, "nginx:1") == "me/web:2"
    assert target(rules, "nginx:2") == "host:latest"
    assert target(rules, "redis") is None


def test_the_machine_cannot_be_mapped_away() -> None:
    assert target(["*=nginx"], "host") is None
    assert is_host(ImageReference.parse("host"))
    assert not is_host(ImageReference.parse("host:2"))


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("busybox", "maps no images: write PATTERN=host"),
        ("=host", "maps no images"),
        ("busybox=", "maps no images"),
        ("busy box=host", "it holds a blank"),
        ("busybox=No Name", '"No Name" is no name of an image'),
    ],
)
def test_what_is_no_rule_is_refused(rule: str, complaint: str) -> None:
    with pytest.raises(InvalidMappingRule) as refused:
        ImageMapping.parse([rule])
    assert complaint in str(refused.value)
