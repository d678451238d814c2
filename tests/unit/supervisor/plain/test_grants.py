import pytest

from kedge.supervisor.plain.grants import GRANTS, advice, settings


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
