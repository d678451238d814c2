"""The paths of `kedge cp`, and names in archives that a container has written."""

import pytest

from kedge.cli.failure import Failure
from kedge.cli.pods.cp.places import FilePlace, direction, inside, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", FilePlace("a/b")),
        ("/a:b", FilePlace("/a:b")),
        ("./a:b", FilePlace("./a:b")),
        ("web:/a", FilePlace("/a", "web")),
        ("shop/web:/a:b", FilePlace("/a:b", "web", "shop")),
    ],
)
def test_a_path_is_here_or_in_a_pod(text: str, expected: FilePlace) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("pair", [("a", "b"), ("p:/a", "q:/b"), ("p:", "a"), ("/x/y/z:/a:", "b")])
def test_exactly_one_path_is_in_a_pod(pair: tuple[str, str]) -> None:
    with pytest.raises(Failure):
        direction(*pair)


@pytest.mark.parametrize(
    ("name", "root", "expected"),
    [
        ("var/log", "/var/log", ""),
        ("var/log/a", "/var/log", "a"),
        ("var/log/a/b", "/var/log/", "a/b"),
        ("a", "a", ""),
        ("./a/b", "a", "b"),
        ("var/log/../../etc/passwd", "/var/log", None),
        ("../x", "/", None),
        ("..", ".", None),
        ("/etc/passwd", "/var/log", None),
        ("var/logs", "/var/log", None),
        ("etc/x", "/", "etc/x"),
    ],
)
def test_members_stay_below_their_root(name: str, root: str, expected: str | None) -> None:
    assert inside(name, root) == expected
