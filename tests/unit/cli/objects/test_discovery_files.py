"""What a server serves, kept between two commands."""

from pathlib import Path

from kedge.cli.objects.discovery_files import DiscoveryFiles
from kedge.client.discovery import Discovery
from kedge.client.login import Login
from kedge.testing.local_server import LocalServer


def files(place: Path, server: str = "https://a", ca: bytes = b"x") -> DiscoveryFiles:
    login = Login(context="c", file=Path("f"), server=server, ca_pem=ca)
    return DiscoveryFiles(place, login)


def test_answers_are_kept_per_server(tmp_path: Path) -> None:
    one = files(tmp_path)
    assert one.load("/api") is None
    one.save("/api", '"1"', b'{"a":1}\n')
    assert files(tmp_path).load("/api") == ('"1"', b'{"a":1}')
    assert files(tmp_path).load("/apis") is None
    assert files(tmp_path, server="https://b").load("/api") is None
    assert files(tmp_path, ca=b"y").load("/api") is None


def test_a_damaged_file_or_a_directory_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    one = files(tmp_path)
    one.save("/api", '"1"', b'{"a":1}')
    [file] = (tmp_path / "discovery").iterdir()
    file.write_bytes(b'"1"\n{"a"')
    assert one.load("/api") is None
    blocked = tmp_path / "file"
    blocked.write_text("")
    files(blocked).save("/api", '"1"', b"{}")


async def test_a_second_command_is_told_only_that_nothing_has_changed(
    server: LocalServer, tmp_path: Path
) -> None:
    first = await Discovery(server.client, files(tmp_path)).served()
    kept = {each.name: each.read_bytes() for each in (tmp_path / "discovery").iterdir()}
    assert len(kept) == 2
    again = await Discovery(server.client, files(tmp_path)).served()
    assert [each.plural for each in again.resources] == [each.plural for each in first.resources]
    # Another answer replaces the kept one.
    for name, content in kept.items():
        (tmp_path / "discovery" / name).write_bytes(b'"other"\n' + content.partition(b"\n")[2])
    await Discovery(server.client, files(tmp_path)).served()
    assert {each.name: each.read_bytes() for each in (tmp_path / "discovery").iterdir()} == kept
