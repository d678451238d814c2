"""The machine's own resolver files."""

from pathlib import Path

from kedge.node.host.resolver_files import machine_dns, machine_hosts


def test_name_servers_are_those_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 192.0.2.53\nsearch example.com\n")
    (tmp_path / "hosts").write_bytes(b"192.0.2.7 box \xff\n")
    found = machine_dns(tmp_path)
    assert (list(found.servers), list(found.searches)) == (["192.0.2.53"], ["example.com"])
    assert machine_hosts(tmp_path) == "192.0.2.7 box \ufffd\n"


def test_a_machine_without_the_files_has_no_names(tmp_path: Path) -> None:
    assert not machine_dns(tmp_path).servers
    assert machine_hosts(tmp_path) == ""
