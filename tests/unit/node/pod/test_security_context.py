from pathlib import Path
from typing import Any

import pytest

from kedge.node.pod.dependencies import ConfigFailure
from kedge.node.pod.security_context import container_security
from kedge.node.runtime.runtime import ContainerSecurity, PidMode
from kedge.testing.node import FakeImage
from kedge.testing.pods import new_pod


def made(
    context: dict[str, Any] | None = None, *, image_user: str = "", **spec: Any
) -> ContainerSecurity:
    whole = {"containers": [{"name": "c", "image": "i"}], **spec}
    container = {} if context is None else {"securityContext": context}
    pod = new_pod(metadata={"uid": "u"}, spec=whole, container=container)
    image = FakeImage("id", "ref", "name", user=image_user)
    return container_security(pod, pod.spec.containers[0], image, profiles=Path("/profiles"))


def test_a_container_speaks_before_its_pod() -> None:
    pod_context = {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 9, "supplementalGroups": [7]}
    found = made({"runAsUser": 3}, securityContext=pod_context)
    assert (found.user, found.group, list(found.groups)) == (3, 2, [7, 9])
    assert found.username == ""


def test_the_image_names_the_user_if_nobody_else_does() -> None:
    assert made(image_user="app").username == "app"


def test_a_privileged_container_has_no_filter() -> None:
    assert made({"privileged": True}).seccomp == "Unconfined"
    assert made().seccomp == "RuntimeDefault"
    local = {"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}}
    assert made(local).seccomp == "/profiles/p.json"


def test_no_privileges_are_gained_only_if_that_is_said() -> None:
    assert made({"allowPrivilegeEscalation": False}).no_new_privileges
    assert not made().no_new_privileges


@pytest.mark.parametrize(
    ("context", "image_user", "message"),
    [
        ({"runAsNonRoot": True}, "", "container has runAsNonRoot and image will run as root"),
        ({"runAsNonRoot": True}, "0:0", "container has runAsNonRoot and image will run as root"),
        ({"runAsNonRoot": True, "runAsUser": 0}, "", "container's runAsUser breaks non-root"),
        ({"runAsNonRoot": True}, "app", "image has non-numeric user (app), cannot verify"),
    ],
)
def test_a_container_that_must_not_be_root_is_not(
    context: dict[str, Any], image_user: str, message: str
) -> None:
    with pytest.raises(ConfigFailure) as failure:
        made(context, image_user=image_user)
    assert message in str(failure.value)
    assert '(pod: "pod_default(u)", container: c)' in str(failure.value)


def test_an_ordinary_user_may_be_required() -> None:
    assert made({"runAsNonRoot": True}, image_user="1000").username == "1000"


def test_processes_are_shared_as_the_pod_says() -> None:
    assert made(hostPID=True).pid is PidMode.HOST
    assert made(shareProcessNamespace=True).pid is PidMode.POD
    assert made().pid is PidMode.CONTAINER


def test_proc_is_unmasked_only_for_users_of_its_own() -> None:
    assert made({"procMount": "Unmasked"}, hostUsers=False).unmasked_proc
    assert not made({"procMount": "Unmasked"}).unmasked_proc
    assert not made(hostUsers=False).unmasked_proc


def test_a_container_that_comes_later_gets_no_profile_either() -> None:
    with pytest.raises(ConfigFailure, match="apparmor is not supported"):
        made({"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}})
    assert made({"appArmorProfile": {"type": "Unconfined"}}).selinux_label == ""


def test_a_label_is_passed_on_to_be_told() -> None:
    options = {"seLinuxOptions": {"user": "u", "role": "r", "type": "t", "level": "s0:c1"}}
    assert made(options).selinux_label == "u:r:t:s0:c1"
    assert made(securityContext=options).selinux_label == "u:r:t:s0:c1"
