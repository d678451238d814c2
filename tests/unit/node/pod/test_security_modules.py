from pathlib import Path
from typing import Any

import pytest

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.pod.admission import PodRejection
from kedge.node.pod.security_modules import APP_ARMOR, SELINUX, enabled, rejection
from kedge.testing.pods import new_pod

PROFILE = {"appArmorProfile": {"type": "RuntimeDefault"}}
UNCONFINED = {"appArmorProfile": {"type": "Unconfined"}}
LOCAL = {"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}}
LABEL = {"seLinuxOptions": {"level": "s0:c1,c2"}}
ABSENT = PodRejection("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
KEY = "container.apparmor.security.beta.kubernetes.io/ctr"


def pod(of_pod: Any = None, of_container: Any = None, annotations: Any = None) -> Pod:
    return new_pod(
        metadata={"annotations": annotations or {}},
        spec={"securityContext": of_pod or {}},
        container={"securityContext": of_container or {}},
    )


@pytest.mark.parametrize(
    ("asking", "refused"),
    [
        (pod(), False),
        (pod(PROFILE), True),
        (pod(LOCAL), True),
        (pod(None, PROFILE), True),
        (pod(None, LOCAL), True),
        (pod(UNCONFINED), False),
        (pod(PROFILE, UNCONFINED), True),
        (pod(UNCONFINED, PROFILE), True),
        (pod(annotations={KEY: "runtime/default"}), True),
        (pod(annotations={KEY: "localhost/p"}), True),
        (pod(annotations={KEY: "unconfined"}), False),
    ],
)
def test_profiles_are_refused_where_there_is_no_app_armor(asking: Pod, refused: bool) -> None:
    assert rejection(asking, ()) == (ABSENT if refused else None)


def test_profiles_are_refused_where_there_is_app_armor_too() -> None:
    found = rejection(pod(PROFILE), {APP_ARMOR})
    text = "Cannot enforce AppArmor: this node's runtime does not apply profiles"
    assert found == PodRejection("AppArmor", text)


@pytest.mark.parametrize("asking", [pod(LABEL), pod(None, LABEL)])
def test_labels_are_refused_only_where_they_would_mean_something(asking: Pod) -> None:
    assert rejection(asking, ()) is None
    found = rejection(asking, {SELINUX})
    text = "Cannot enforce SELinux: this node's runtime does not apply labels"
    assert found == PodRejection("SELinux", text)
    assert rejection(pod(), {SELINUX, APP_ARMOR}) is None


def test_modules_are_found_by_what_the_kernel_shows(tmp_path: Path) -> None:
    assert enabled(tmp_path) == frozenset()
    parameters = tmp_path / "module/apparmor/parameters"
    parameters.mkdir(parents=True)
    (parameters / "enabled").write_text("N\n")
    assert enabled(tmp_path) == frozenset()
    (parameters / "enabled").write_text("Y\n")
    (tmp_path / "fs/selinux").mkdir(parents=True)
    (tmp_path / "fs/selinux/enforce").write_text("1")
    assert enabled(tmp_path) == {APP_ARMOR, SELINUX}
