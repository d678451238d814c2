"""Flags of kube-apiserver, as envtest and its users give them."""

import re

import pytest

from kedge.apiserver.config import ServerConfig
from kedge.cli.envtest import flags
from kedge.cli.failure import Failure
from kedge.settings.setting import bound_settings

OF_ENVTEST = [
    "--allow-privileged=true",
    "--authorization-mode=RBAC",
    "--bind-address=127.0.0.1",
    "--cert-dir=/d",
    "--client-ca-file=/d/ca.crt",
    "--disable-admission-plugins=ServiceAccount",
    "--etcd-servers=http://127.0.0.1:1",
    "--secure-port=2",
    "--service-account-issuer=https://127.0.0.1:2/",
    "--service-account-key-file=/d/sa.crt",
    "--service-account-signing-key-file=/d/sa.key",
    "--service-cluster-ip-range=10.0.0.0/24",
]


def test_the_arguments_of_envtest_need_no_warning() -> None:
    found = flags.translated(OF_ENVTEST)
    assert found.server == [
        "--host=127.0.0.1",
        "--disable-admission-plugins=ServiceAccount",
        "--port=2",
    ]
    assert (found.warnings, found.given["cert-dir"]) == ([], "/d")


def test_lists_that_are_given_again_are_added_up() -> None:
    given = [
        "--disable-admission-plugins=ServiceAccount",
        "--disable-admission-plugins=PodSecurity",
    ]
    assert flags.translated(given).server == [
        "--disable-admission-plugins=ServiceAccount,PodSecurity"
    ]


def test_an_audit_log_needs_a_file() -> None:
    found = flags.translated(["--audit-log-path=-"])
    assert found.server == []
    assert found.warnings == ["--audit-log-path=- has no effect: name a file"]
    assert flags.translated(["--audit-log-path=/f"]).server == ["--audit-log-path=/f"]


def test_flags_without_effect_are_named() -> None:
    given = ["--runtime-config=api/all=true", "--event-ttl", "5m", "--v=4", "--insecure-port=0"]
    assert flags.translated(given).warnings == [
        "--runtime-config has no effect: kedge always serves the same APIs",
        "--event-ttl has no effect",
    ]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--no-such", "unknown flag: --no-such"),
        ("--insecure-port=8080", "--insecure-port=8080 is not supported: there is no port"),
        ("--allow-privileged=false", "--allow-privileged=false is not supported"),
        ("--authorization-mode=RBAC,ABAC", "--authorization-mode=ABAC is not supported"),
    ],
)
def test_flags_that_cannot_be_honoured_are_refused(flag: str, words: str) -> None:
    with pytest.raises(Failure, match=re.escape(words)):
        flags.translated([flag])


def test_every_flag_is_of_one_sort_and_the_server_has_those_that_are_passed_on() -> None:
    groups = [flags.SAME, flags.RENAMED, flags.USED, flags.REQUIRED_VALUES, flags.FIXED]
    names = [name for group in groups for name in group] + list(flags.WITHOUT_EFFECT)
    assert len(names) == len(set(names))
    assert set(names) >= flags.QUIET
    own = {each.setting.name for each in bound_settings(ServerConfig)}
    assert own >= {*flags.SAME, *flags.RENAMED.values()}


def test_envtest_finds_flags_in_the_help() -> None:
    def has(flag: str) -> bool:
        return re.search(rf"(?m)^\s*--{flag}\b", flags.help_text()) is not None

    assert has("etcd-servers")
    # Since 1.24 there is no such flag, and envtest then does not give it.
    assert not has("insecure-port")
