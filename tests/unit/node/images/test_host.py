"""What the image `host` hides of a machine."""

from pathlib import Path

from kedge.node.images.host import HostImage, host_image


def hidden(image: HostImage) -> set[str]:
    return {each.path for each in image.hidden}


def image(*shown: str) -> HostImage:
    return host_image(own=[Path("/state")], shown=list(map(Path, shown)), is_enabled=True)


def test_credentials_homes_and_kedges_own_files_are_hidden() -> None:
    assert {"/etc/shadow", "/etc/ssh", "/root", "/home", "/state"} <= hidden(image())
    assert image().shown == ()


def test_a_listed_path_and_those_below_a_shown_one_are_no_longer_hidden() -> None:
    assert {"/etc/shadow", "/root"} & hidden(image("/etc", "/root")) == set()
    assert image("/etc", "/root").shown == ()


def test_a_path_below_a_hidden_directory_is_shown_and_the_rest_stays_hidden() -> None:
    shown = image("/home/me/project")
    assert "/home" in hidden(shown)
    assert shown.shown == ("/home/me/project",)


def test_kedges_own_files_cannot_be_shown() -> None:
    assert "/state" in hidden(image("/", "/state"))
