from pathlib import Path

import pytest

from kedge.node.host import teardown
from kedge.node.runtime.cri import sub_paths
from kedge.node.runtime.runtime import ContainerMount
from kedge.node.volumes import mounts


class _NoNames:
    """The file of the machine's DNS servers is left alone."""

    def clear(self) -> None: ...


async def _nothing_runs(runtime: Path) -> str:
    return ""


def test_subpaths_go_though_the_container_runtime_does_not_answer(
    mountable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teardown, "_end_containers", _nothing_runs)
    monkeypatch.setattr(teardown, "MachineNames", _NoNames)
    volume, node = mountable / "volume", mountable / "node"
    (volume / "inner").mkdir(parents=True)
    (volume / "inner" / "file").write_text("precious")
    mount = ContainerMount(container_path="/data", host_path=str(volume), part="inner")
    sub_paths.mounted([mount], node / "runtime" / "subpaths" / "s" / "main-0")
    assert teardown.teardown(node) == ""
    assert mounts.below(mountable) == []
    assert not (node / "runtime" / "subpaths").exists()
    assert (volume / "inner" / "file").read_text() == "precious"
