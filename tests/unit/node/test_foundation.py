"""The parts of a node that need no API server."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from kedge.api.core_v1.node_types import ContainerImage
from kedge.node.cgroups.tree import NoCgroups, PodCgroupTree
from kedge.node.runtime.runtime import RuntimeLevel
from kedge.testing.foundation import foundation


@pytest.mark.parametrize(
    ("level", "kind"), [(RuntimeLevel.FULL, PodCgroupTree), (RuntimeLevel.USERNS, NoCgroups)]
)
def test_only_root_has_control_groups_for_pods(
    tmp_path: Path, level: RuntimeLevel, kind: type
) -> None:
    base = foundation(tmp_path, level=level)
    assert type(base.pod_cgroups()) is kind
    assert base.may_mount is (level is RuntimeLevel.FULL)


def test_images_are_listed_with_digests_before_names(tmp_path: Path) -> None:
    image = SimpleNamespace(
        names=["web:1"], digests=["web@sha256:1"], record=SimpleNamespace(size=7)
    )
    base = foundation(tmp_path, images=[image])
    assert base.images_in_status() == [ContainerImage(names=["web@sha256:1", "web:1"], sizeBytes=7)]
