"""The CDI specs that drivers write, as the node reads them."""

import json
from pathlib import Path

from kedge.dra import CdiDeviceNode, CdiMount, CdiSpecs, ContainerEdits
from kedge.node.devices import cdi
from kedge.node.runtime.runtime import ContainerDevice, ContainerMount

EDITS = {
    "one": ContainerEdits(
        env={"A": "1"},
        device_nodes=[CdiDeviceNode(path="/dev/one", host_path="/dev/null")],
        mounts=[CdiMount(container_path="/one", host_path="/tmp", read_only=True)],
    ),
    "two": ContainerEdits(env={"B": "2"}),
}


def test_the_node_resolves_the_ids(tmp_path: Path) -> None:
    ids = CdiSpecs(tmp_path, "d.example.com").write("uid", EDITS)
    assert ids == {
        "one": "d.example.com/claim=uid-one",
        "two": "d.example.com/claim=uid-two",
    }
    grant = cdi.resolve([ids["one"]], [tmp_path], tmp_path)
    assert grant.env == {"A": "1"}
    assert list(grant.devices) == [
        ContainerDevice(container_path="/dev/one", host_path="/dev/null", permissions="rw")
    ]
    assert list(grant.mounts) == [
        ContainerMount(container_path="/one", host_path="/tmp", read_only=True)
    ]
    assert cdi.resolve([ids["two"]], [tmp_path], tmp_path).env == {"B": "2"}


def test_a_spec_is_written_again_and_removed_once(tmp_path: Path) -> None:
    specs = CdiSpecs(tmp_path / "new", "d.example.com")
    specs.write("uid", EDITS)
    specs.write("uid", {"two": EDITS["two"]})
    written = json.loads(specs.path("uid").read_text())
    assert [each["name"] for each in written["devices"]] == ["uid-two"]
    for _ in range(2):
        specs.remove("uid")
    assert list((tmp_path / "new").iterdir()) == []


def test_files_of_a_driver_that_was_killed_while_it_wrote_are_removed(tmp_path: Path) -> None:
    specs = CdiSpecs(tmp_path, "d.example.com")
    unfinished = tmp_path / f".{specs.path('uid').name}.8841"
    of_another = tmp_path / f".{specs.path('other').name}.8841"
    for each in (unfinished, of_another):
        each.touch()
    specs.write("uid", EDITS)
    assert not unfinished.exists()
    specs.remove("uid")
    assert list(tmp_path.iterdir()) == [of_another]
