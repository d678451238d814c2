import ast
import re
from pathlib import Path

import pytest

from kedge.supervisor.kernel import libc
from kedge.supervisor.plain.grants import GRANTS, OPERATIONS, advice, explained, settings

PERMITTED = ("open ", "fstatfs", "close_range", "prctl ", "capget", "capset")
"""System calls that take no capability, for what the supervisor calls them for."""


def test_every_engine_has_its_setting() -> None:
    found = settings("CAP_SYS_ADMIN", "CAP_NET_ADMIN")
    assert found.options == (
        "--cap-add=SYS_ADMIN --cap-add=NET_ADMIN --security-opt=seccomp=unconfined"
        " --security-opt=apparmor=unconfined"
    )
    assert found.gitlab == (
        'cap_add = ["SYS_ADMIN", "NET_ADMIN"],'
        ' security_opt = ["seccomp=unconfined", "apparmor=unconfined"]'
    )
    assert found.kubernetes == (
        'capabilities: {add: ["SYS_ADMIN", "NET_ADMIN"]}, seccompProfile: {type: Unconfined},'
        " appArmorProfile: {type: Unconfined}"
    )


@pytest.mark.parametrize("capability", GRANTS)
def test_advice_names_the_capability_and_every_engine(capability: str) -> None:
    told = advice(capability)
    assert told.startswith(f"this takes {capability}: ")
    short = capability.removeprefix("CAP_")
    assert told.count(short) == 4
    for engine in ("docker", "podman", "GitHub Actions", "GitLab Runner", "Kubernetes"):
        assert engine in told


def operations() -> list[str]:
    """The beginnings of all errors of system calls that the supervisor makes."""
    assert libc.__file__ is not None
    found = []
    for each in ast.walk(ast.parse(Path(libc.__file__).read_text())):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            match each.func.id, each.args:
                case ("_checked", [_, what]) | ("_syscall" | "_old", [what, *_]):
                    found += re.findall(r"^f?['\"]([a-z_ ]+)", ast.unparse(what))
    return sorted({*found})


def test_every_system_call_of_the_supervisor_has_its_capability() -> None:
    assert {"mount ", "unshare", "pivot_root"} <= {*operations()}
    unknown = [
        each
        for each in operations()
        if each not in PERMITTED and not any(re.search(rf"\b{word}", each) for word in OPERATIONS)
    ]
    assert unknown == []


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("mount overlay on /x: Operation not permitted", "CAP_SYS_ADMIN"),
        ('failed to mount "/a" at "/b": operation not permitted', "CAP_SYS_ADMIN"),
        ("cannot set up the network of the pod: Operation not permitted", "CAP_NET_ADMIN"),
        ("oom_score_adj stays 0: this machine does not let it be -997", "CAP_SYS_RESOURCE"),
        ("mknod /dev/null: Operation not permitted", "CAP_MKNOD"),
        ("chown /data: Operation not permitted", "CAP_CHOWN"),
        ("its capabilities are those of kedge: this machine does not let them go", "CAP_SETPCAP"),
        ("its read-only volumes can be written to: this machine allows no mounts", "CAP_SYS_ADMIN"),
        ("the size is not enforced: the agent has no right to mount", "CAP_SYS_ADMIN"),
        ("mount /pods/linkerd/network at /owner: Operation not permitted", "CAP_SYS_ADMIN"),
        ("symlink /data: Operation not permitted", "CAP_SYS_ADMIN"),
        ("anything: Operation not permitted", "CAP_SYS_ADMIN"),
    ],
)
def test_a_refusal_of_the_kernel_is_explained(text: str, capability: str) -> None:
    told = explained(text)
    assert told == f"{text}; {advice(capability)}"
    assert explained(told) == told


@pytest.mark.parametrize("text", ["", "no such file or directory", "Permission denied"])
def test_other_messages_stay(text: str) -> None:
    assert explained(text) == text


@pytest.mark.parametrize("capability", sorted({*OPERATIONS.values()}))
def test_advice_exists_for_every_operation(capability: str) -> None:
    assert capability in GRANTS
