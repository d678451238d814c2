"""What is collected for volumes, and where the work is done."""

from typing import Any, cast

import pytest

from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.secret import Secret
from kedge.api.core_v1.volume.projection import (
    ConfigMapVolumeSource,
    KeyToPath,
    SecretVolumeSource,
)
from kedge.api.core_v1.volume.volume import Volume
from kedge.node.pod.environment.downward import DownwardContext
from kedge.node.volumes import payload
from kedge.node.volumes.payload import PayloadCollector
from kedge.testing.clock import FakeClock


class Objects:
    """Stands for ReferencedObjects and ConfigObjectWatches."""

    def watched(self, reference: object) -> None:
        return None

    async def find(self, reference: Any) -> ConfigMap | Secret:
        if reference.plural == "secrets":
            return Secret(data={"key": "eA=="})
        return ConfigMap(data={"key": "x"})


@pytest.mark.parametrize(("items", "is_large"), [(10, False), (20_000, True)])
async def test_many_items_of_a_small_object_do_not_block_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, items: int, is_large: bool
) -> None:
    sizes: list[int] = []

    async def noted(size: int, work: Any) -> Any:
        sizes.append(size)
        return work()

    monkeypatch.setattr(payload, "beside_loop", noted)
    objects = cast(Any, Objects())
    collector = PayloadCollector(objects, objects, FakeClock())
    listed = [KeyToPath(key="key", path=f"file-{number}") for number in range(items)]
    for volume in (
        Volume(name="v", configMap=ConfigMapVolumeSource(name="c", items=listed)),
        Volume(name="v", secret=SecretVolumeSource(secretName="s", items=listed)),
    ):
        found = await collector.collect(Pod(), volume, DownwardContext(), ())
        assert len(found.files) == items
    assert [size > payload.SMALL for size in sizes] == [is_large, is_large]
