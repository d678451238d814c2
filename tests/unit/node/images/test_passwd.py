"""Users of an image in numbers."""

import os
from pathlib import Path

import pytest

from kedge.node.images import passwd
from kedge.node.images.passwd import ImageUser, NoSuchUser
from kedge.testing.images import write_files

PASSWD = b"""root:x:0:0:root:/root:/bin/sh
# a remark
broken:x
app:x:1000:1001:App:/home/app:/bin/sh
500:x:7:8::/:/bin/sh
nohome:x:9:9:::
"""
GROUP = b"""root:x:0:
app:x:1001:
wheel:x:10:root,app
video:x:44:app
"""


@pytest.fixture
def image(tmp_path: Path) -> list[Path]:
    write_files(tmp_path / "low", {"etc/passwd": PASSWD, "etc/group": GROUP})
    write_files(tmp_path / "top", {"other": b""})
    return [tmp_path / "top", tmp_path / "low"]


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("", ImageUser(0, 0, (0, 10), "/root")),
        ("app", ImageUser(1000, 1001, (10, 44, 1001), "/home/app")),
        ("1000", ImageUser(1000, 1001, (10, 44, 1001), "/home/app")),
        ("app:wheel", ImageUser(1000, 10, (10, 44), "/home/app")),
        ("app:5", ImageUser(1000, 5, (5, 10, 44), "/home/app")),
        ("4242", ImageUser(4242, 0, (0,), "/")),
        ("4242:4343", ImageUser(4242, 4343, (4343,), "/")),
        ("500", ImageUser(7, 8, (8,), "/")),
        ("nohome", ImageUser(9, 9, (9,), "/")),
        ("01000", ImageUser(1000, 1001, (10, 44, 1001), "/home/app")),
    ],
)
def test_users_are_looked_up_in_the_image(image: list[Path], text: str, user: ImageUser) -> None:
    assert passwd.lookup(image, text) == user


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ghost", "unable to find user ghost: no matching entries in passwd file"),
        ("app:ghosts", "unable to find group ghosts: no matching entries in group file"),
        ("2147483648", "uids and gids must be in range 0-2147483647"),
    ],
)
def test_who_is_not_known_is_said(image: list[Path], text: str, complaint: str) -> None:
    with pytest.raises(NoSuchUser) as refused:
        passwd.lookup(image, text)
    assert str(refused.value) == complaint


def test_an_image_without_the_files_knows_numbers_only(tmp_path: Path) -> None:
    assert passwd.lookup([tmp_path], "5") == ImageUser(5, 0, (0,), "/")
    with pytest.raises(NoSuchUser):
        passwd.lookup([tmp_path], "root")


def test_the_files_of_the_machine_are_never_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"evil:x:666:666::/:/bin/sh\n")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    os.symlink("../../outside", root / "etc/passwd")
    assert passwd.lookup([root], "666") == ImageUser(666, 0, (0,), "/")
    os.unlink(root / "etc/passwd")
    os.symlink("/usr/lib/passwd", root / "etc/passwd")
    write_files(root, {"usr/lib/passwd": b"in:x:3:4::/in:/bin/sh\n"})
    assert passwd.lookup([root], "in") == ImageUser(3, 4, (4,), "/in")
    os.unlink(root / "etc/passwd")
    os.mkfifo(root / "etc/passwd")
    assert passwd.lookup([root], "0") == ImageUser(0, 0, (0,), "/")


@pytest.mark.parametrize(
    ("user", "username", "group", "image_user", "text"),
    [
        (None, "", None, "", "0"),
        (None, "", None, "app:wheel", "app"),
        (None, "", 5, "1000:7", "1000:5"),
        (None, "other", None, "app", "other"),
        (3, "other", 4, "app", "3:4"),
        (0, "", None, "app", "0"),
    ],
)
def test_a_pod_has_the_last_word_on_who_to_be(
    user: int | None, username: str, group: int | None, image_user: str, text: str
) -> None:
    assert passwd.requested_user(user, username, group, image_user) == text


def test_what_an_image_declares_is_a_number_or_a_name() -> None:
    assert passwd.declared_user("") == 0
    assert passwd.declared_user("1000:1000") == 1000
    assert passwd.declared_user("nobody:nogroup") == "nobody"
