from pathlib import Path

import pytest

from kedge.cluster.errors import ClusterError
from kedge.cluster.needs import MachineNeeds, existing_kubeconfig, lack


def test_keywords_of_the_marker_are_needs_and_settings() -> None:
    found = MachineNeeds.of({"root": True, "level": "full", "nodes": 2, "max_pods": 5})
    assert found == MachineNeeds(True, "full", {"nodes": 2, "max_pods": 5})
    with pytest.raises(ClusterError, match='there is no level "half": the levels are plain'):
        MachineNeeds.of({"level": "half"})


@pytest.mark.parametrize(
    ("needs", "user", "level", "reason"),
    [
        (MachineNeeds(), 1000, "plain", ""),
        (MachineNeeds(root=True), 0, "plain", ""),
        (MachineNeeds(root=True), 1000, "full", "needs root, and the tests run as user 1000"),
        (MachineNeeds(level="userns"), 1000, "full", ""),
        (MachineNeeds(level="userns"), 1000, "userns", ""),
        (
            MachineNeeds(level="userns"),
            0,
            "plain",
            'needs the level "userns", and this machine has "plain": see kedge doctor',
        ),
    ],
)
def test_the_lack_of_a_machine_is_the_reason(
    needs: MachineNeeds, user: int, level: str, reason: str
) -> None:
    assert lack(needs, user, lambda: level) == reason


def test_an_existing_cluster_is_that_of_the_file_or_of_the_variable(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.touch()
    assert existing_kubeconfig(str(file), {"KUBECONFIG": "/other"}) == file
    assert existing_kubeconfig("", {"KUBECONFIG": f"{file}:/other"}) == file
    with pytest.raises(ClusterError, match="--kedge-existing: /missing does not exist"):
        existing_kubeconfig("/missing", {})
