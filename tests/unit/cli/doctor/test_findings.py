"""Findings about machines that lack one thing or another."""

from datetime import UTC, datetime

import pytest

from kedge import KUBERNETES
from kedge.cli.doctor.findings import MachineFinding, diagnose, is_supported, kernel_version
from kedge.cli.doctor.machine_facts import (
    MachineFacts,
    NetworkAttempt,
    ServerCount,
    StoreReach,
    WayOutAttempt,
)
from kedge.supervisor.machine_capabilities import (
    ADVISORY,
    FULL,
    PLAIN,
    SUBORDINATE_IDS,
    USERNS,
    of_level,
)

ROOT = MachineFacts(
    kernel="6.1.0-28-amd64",
    user="root",
    is_root=True,
    has_systemd=True,
    is_container=False,
    switches={},
    capabilities=of_level(FULL),
    network=NetworkAttempt("", ""),
    way_out=None,
    lowest_port=1,
    loopback="",
    kubectl="/usr/bin/kubectl",
    kubectl_version=f"v{KUBERNETES}",
    now=datetime(2030, 1, 2, tzinfo=UTC),
    is_synchronized=True,
    state="/var/lib/kedge",
    is_state_writable=True,
    disk_free=50 << 30,
    disk_size=100 << 30,
    open_files=65_536,
)
USER = ROOT._replace(user="alice", is_root=False, lowest_port=1024, capabilities=of_level(USERNS))


def lacking(machine: MachineFacts) -> dict[str, MachineFinding]:
    return {each.name: each for each in diagnose(machine) if each.status != "ok"}


def test_root_lacks_nothing() -> None:
    assert lacking(ROOT) == {}
    assert {each.name for each in diagnose(ROOT)} >= {
        "kernel", "namespaces", "overlay", "cpu limits", "memory limits", "pids limits", "users",
        "devices", "pod network", "packet rules", "ports", "kubectl", "clock", "disk",
    }  # fmt: skip


def test_a_user_learns_how_to_get_control_groups() -> None:
    found = lacking(USER)
    assert {*found} == {
        "cpu limits", "memory limits", "pids limits", "users", "devices", "ports"
    }  # fmt: skip
    assert found["memory limits"].mend == "systemd-run --user --scope -p Delegate=yes kedge up"
    assert found["memory limits"].found.startswith("sampled")
    assert "ip_unprivileged_port_start=80" in found["ports"].mend
    without_systemd = lacking(USER._replace(has_systemd=False))
    assert "that root has given to this user" in without_systemd["cpu limits"].mend
    assert all(each.cost and each.mend for each in found.values())


def test_a_user_learns_how_to_get_subordinate_ids() -> None:
    assert lacking(USER)["users"].mend == (
        "sudo apt install uidmap && sudo usermod --add-subuids 100000-165535"
        " --add-subgids 100000-165535 alice"
    )
    granted = of_level(USERNS)._replace(ids=SUBORDINATE_IDS)
    assert "users" not in lacking(USER._replace(capabilities=granted))


def test_each_controller_is_a_finding_of_its_own() -> None:
    some = of_level(USERNS)._replace(memory="kernel")
    assert "memory limits" not in lacking(USER._replace(capabilities=some))
    none = of_level(USERNS)._replace(cpu=ADVISORY)
    found = lacking(USER._replace(capabilities=none))["cpu limits"]
    assert found.cost == "cpu limits have no effect"


@pytest.mark.parametrize(
    ("name", "value", "mend"),
    [
        ("kernel/unprivileged_userns_clone", 0, "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", 0, "user.max_user_namespaces=15000"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            1,
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_the_setting_that_forbids_namespaces_is_named(name: str, value: int, mend: str) -> None:
    machine = USER._replace(capabilities=of_level(PLAIN), switches={name: value})
    found = lacking(machine)["namespaces"]
    assert (found.status, found.mend) == ("lacks", f"sudo sysctl -w {mend}")


def test_a_container_needs_more_privileges() -> None:
    plain = ROOT._replace(is_container=True, capabilities=of_level(PLAIN))
    refused = NetworkAttempt("there are no network namespaces", "there are no network namespaces")
    found = lacking(plain._replace(network=refused))
    assert "--privileged" in found["memory limits"].mend
    for name in ("namespaces", "pod network", "packet rules"):
        assert "--cap-add=SYS_ADMIN --cap-add=NET_ADMIN" in found[name].mend
    assert found["overlay"].mend == ""


def test_modules_of_the_kernel_are_named() -> None:
    found = lacking(ROOT._replace(network=NetworkAttempt("no links", "no tables")))
    assert found["pod network"].mend == "sudo modprobe -a veth bridge"
    assert found["packet rules"].mend == "sudo modprobe -a nf_tables"


@pytest.mark.parametrize(
    ("machine", "name", "status"),
    [
        (ROOT._replace(kernel="5.4.0"), "kernel", "lacks"),
        (ROOT._replace(loopback="Network is down"), "loopback", "failed"),
        (ROOT._replace(kubectl="", kubectl_version=""), "kubectl", "lacks"),
        (ROOT._replace(kubectl_version="v1.20.1"), "kubectl", "lacks"),
        (ROOT._replace(now=datetime(1970, 1, 1, tzinfo=UTC)), "clock", "failed"),
        (ROOT._replace(is_synchronized=False), "clock", "lacks"),
        (ROOT._replace(disk_free=1 << 20), "disk", "failed"),
        (ROOT._replace(disk_free=100 << 20), "disk", "lacks"),
        (ROOT._replace(is_state_writable=False), "state", "failed"),
        (ROOT._replace(open_files=1024), "open files", "lacks"),
    ],
)
def test_a_lack_is_found(machine: MachineFacts, name: str, status: str) -> None:
    found = lacking(machine)
    assert {*found} == {name}
    assert found[name].status == status
    assert found[name].cost
    assert found[name].mend


@pytest.mark.parametrize(
    ("client", "supported"),
    [("v1.35.9", True), ("v1.37.0", True), ("v1.34.0", False), ("v2.36.0", False), ("", False)],
)
def test_kubectl_may_differ_by_one_minor_version(client: str, supported: bool) -> None:
    assert is_supported(client, "1.36.4") is supported


@pytest.mark.parametrize(
    ("release", "version"), [("6.1.0-28-amd64", (6, 1)), ("5.15-rc1", (5, 15)), ("odd", (0, 0))]
)
def test_the_kernel_is_compared_by_number(release: str, version: tuple[int, ...]) -> None:
    assert kernel_version(release) == version


@pytest.mark.parametrize(
    ("tried", "status", "found", "mend"),
    [
        (WayOutAttempt("pasta", {}), "ok", "pasta, which worked in a trial", ""),
        (
            WayOutAttempt("", {"slirp4netns": "not installed", "pasta": "not installed"}),
            "lacks",
            "forwarder; slirp4netns: not installed; pasta: not installed",
            "sudo apt install slirp4netns",
        ),
        (
            WayOutAttempt("", {"slirp4netns": "not installed", "pasta": "/dev/net/tun: no"}),
            "lacks",
            "forwarder; slirp4netns: not installed; pasta: /dev/net/tun: no",
            "sudo chmod 666 /dev/net/tun",
        ),
    ],
)
def test_the_way_out_of_an_ordinary_user(
    tried: WayOutAttempt, status: str, found: str, mend: str
) -> None:
    checks = {each.name: each for each in diagnose(USER._replace(way_out=tried))}
    shown = checks["way out"]
    assert (shown.status, shown.found, shown.mend) == (status, found, mend)
    assert bool(shown.cost) == (status != "ok")
    assert "way out" not in {each.name for each in diagnose(ROOT)}


@pytest.mark.parametrize(
    ("stopped", "status", "found"),
    [
        ((), "ok", '3 of 3 servers of "dev" run'),
        (("server-2",), "lacks", '3 of 4 servers of "dev" run'),
    ],
)
def test_servers_that_do_not_run_are_named(
    stopped: tuple[str, ...], status: str, found: str
) -> None:
    count = ServerCount("dev", 3, stopped)
    shown = next(e for e in diagnose(ROOT._replace(servers=(count,))) if e.name == "servers")
    assert (shown.status, shown.found) == (status, found)
    assert all(name in shown.mend for name in stopped)


def store_finding(kind: str, members: int, *silent: str) -> MachineFinding:
    reach = StoreReach(kind, "dev", members, dict.fromkeys(silent, "Connection refused"))
    return next(each for each in diagnose(ROOT._replace(stores=(reach,))) if each.name == kind)


def test_the_etcd_of_a_cluster_is_looked_at() -> None:
    assert store_finding("etcd", 3) == MachineFinding(
        "etcd", "ok", '3 of 3 members of "dev" answer'
    )
    one = store_finding("etcd", 3, "a:2379")
    assert (one.status, one.found) == ("lacks", '2 of 3 members of "dev" answer')
    assert one.cost == "the loss of another member may stop writes"
    assert one.mend == "start etcd (a:2379: Connection refused)"
    assert (
        store_finding("etcd", 3, "a:1", "b:1").cost
        == 'cluster "dev" cannot be written, nor started'
    )
    assert store_finding("etcd", 1, "a:1").cost == 'cluster "dev" cannot be written, nor started'


def test_the_postgresql_of_a_cluster_needs_one_server() -> None:
    one = store_finding("postgresql", 2, "a:5432")
    assert one.found == '1 of 2 servers of "dev" answer'
    assert one.cost == "the loss of another server may stop writes"
    assert one.mend == "start postgresql (a:5432: Connection refused)"
    none = store_finding("postgresql", 2, "a:1", "b:1")
    assert none.cost == 'cluster "dev" cannot be written, nor started'
