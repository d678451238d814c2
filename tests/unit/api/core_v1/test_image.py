"""Which tag an image names, and when it is pulled by default."""

import pytest

from kedge.api.core_v1 import image


@pytest.mark.parametrize(
    ("reference", "tag", "policy"),
    [
        ("busybox", "latest", "Always"),
        ("busybox:latest", "latest", "Always"),
        ("busybox:1.36", "1.36", "IfNotPresent"),
        ("registry.example.com:5000/team/app", "latest", "Always"),
        ("registry.example.com:5000/team/app:v1", "v1", "IfNotPresent"),
        ("app@sha256:" + "a" * 64, "", "IfNotPresent"),
        ("app:v1@sha256:" + "a" * 64, "v1", "IfNotPresent"),
        ("Upper/Case", "", "IfNotPresent"),
        ("not an image", "", "IfNotPresent"),
        ("", "", "IfNotPresent"),
    ],
)
def test_images_without_a_fixed_tag_are_pulled_always(
    reference: str, tag: str, policy: str
) -> None:
    assert image.tag(reference) == tag
    assert image.pull_policy(reference) == policy
