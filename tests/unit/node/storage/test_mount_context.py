"""The further arguments of drivers."""

from kedge.node.storage.mount_context import attachment_name


def test_the_attachment_has_the_name_that_the_controller_gives_it() -> None:
    assert attachment_name("d", "h", "n") == (
        "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d"
    )
