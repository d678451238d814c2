"""The line of the cluster's DNS server in the resolv.conf of a container."""

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from kedge.node.host.resolver_files import machine_dns
from kedge.node.network.machine_names import MachineNames, with_server, without_server
from kedge.testing.pods import new_pod

SERVER = IPv4Address("127.96.0.10")
BEFORE = "# of the engine\nnameserver 10.0.2.3\nsearch example.com\n"
Make = Callable[..., MachineNames]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "resolv.conf"
    made.write_text(BEFORE)
    return made


@pytest.fixture
def names(file: Path, tmp_path: Path) -> Iterator[Make]:
    made: list[MachineNames] = []
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 2 0:3 /x/resolv.conf {file} rw - ext4 /dev/vda rw\n")

    def make(*, is_wanted: bool = True) -> MachineNames:
        made.append(MachineNames(is_wanted=is_wanted, file=file, mounts=mounts))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_the_file_of_a_container_leads_to_the_cluster_until_it_stops(
    names: Make, file: Path
) -> None:
    made = names()
    made.begin(SERVER)
    # The next agent of the node takes it over.
    made.begin(SERVER)
    lines = file.read_text().splitlines()
    assert lines[1:] == [f"nameserver {SERVER}", *BEFORE.splitlines()]
    assert lines[0].startswith("# ")
    # The cluster's server asks those of the machine, not itself.
    assert machine_dns(file.parent).servers == ["10.0.2.3"]
    made.close()
    assert file.read_text() == BEFORE


def test_what_a_killed_node_has_left_is_removed(names: Make, file: Path) -> None:
    file.write_text(with_server(BEFORE, SERVER))
    names().clear()
    assert file.read_text() == BEFORE
    # A server of this network that somebody else wrote stays.
    foreign = f"nameserver {SERVER}\n{BEFORE}"
    file.write_text(foreign)
    names().clear()
    assert file.read_text() == foreign


def test_the_line_of_a_node_that_runs_stays(names: Make, file: Path) -> None:
    names().begin(SERVER)
    names().clear()
    assert f"nameserver {SERVER}" in file.read_text()


def test_bytes_of_no_encoding_stay_as_they_are(names: Make, file: Path) -> None:
    before = b"# B\xfcro\n" + BEFORE.encode()
    file.write_bytes(before)
    made = names()
    made.begin(SERVER)
    assert file.read_bytes().endswith(before)
    made.close()
    assert file.read_bytes() == before


def test_the_file_of_a_machine_is_left_alone(file: Path, tmp_path: Path) -> None:
    made = MachineNames(file=file, mounts=tmp_path / "none")
    made.begin(SERVER)
    assert file.read_text() == BEFORE
    assert made.refusal == f"{file} belongs to the machine"
    assert made.variables(new_pod(), SERVER) == {}
    made.close()


def test_one_node_of_a_machine_has_the_file(names: Make, file: Path) -> None:
    first, second = names(), names()
    second.begin(SERVER)
    assert (first.refusal, file.read_text()) == ("", BEFORE)
    assert "another node" in second.refusal
    first.close()
    assert names().refusal == ""


def test_a_node_without_a_dns_server_does_not_ask_for_it(names: Make) -> None:
    assert names(is_wanted=False).refusal
    assert names().refusal == ""


def test_variables_tell_the_domains_of_the_namespace(names: Make) -> None:
    made = names()
    pod = new_pod(metadata={"namespace": "shop"})
    assert made.variables(pod, SERVER) == {
        "LOCALDOMAIN": "shop.svc.cluster.local svc.cluster.local cluster.local example.com",
        "RES_OPTIONS": "ndots:5",
    }
    assert made.variables(new_pod(spec={"dnsPolicy": "Default"}), SERVER) == {}


@pytest.mark.parametrize("text", ["", "nameserver\n", "nameserver ::1", BEFORE])
def test_other_lines_stay(text: str) -> None:
    assert without_server(with_server(text, SERVER)) == text
    # Those of a cluster that was killed do not.
    assert without_server(with_server(with_server(text, SERVER), SERVER)) == text
