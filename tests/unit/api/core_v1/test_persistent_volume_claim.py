from msgspec.structs import replace

from kedge.api.core_v1.claim import PersistentVolumeClaimSpec, VolumeResourceRequirements
from kedge.api.core_v1.persistent_volume_claim import (
    RESOURCE,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
)
from kedge.api.core_v1.references import TypedLocalObjectReference, TypedObjectReference
from kedge.machinery.quantity import Quantity


def asking(size: str = "1Gi", **fields: object) -> PersistentVolumeClaim:
    requests = {"storage": Quantity.parse(size)}
    spec = PersistentVolumeClaimSpec(
        accessModes=["ReadWriteOnce"],
        resources=VolumeResourceRequirements(requests=requests),
    )
    return RESOURCE.strategy.prepare_for_create(
        RESOURCE.strategy.default(PersistentVolumeClaim(spec=replace(spec, **fields)))
    )


def bound(size: str, capacity: str) -> PersistentVolumeClaim:
    status = PersistentVolumeClaimStatus(
        phase="Bound",
        capacity={"storage": Quantity.parse(capacity)},
        accessModes=["ReadWriteMany", "ReadWriteOnce"],
    )
    return replace(asking(size, volumeName="pv1"), status=status)


def errors(obj: PersistentVolumeClaim) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def changes(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate_update(new, old)]


def test_a_new_claim_waits_for_a_file_system() -> None:
    obj = asking()
    assert (obj.status.phase, obj.spec.volumeMode) == ("Pending", "Filesystem")
    assert errors(obj) == []


def test_a_claim_needs_a_mode_and_a_size() -> None:
    assert errors(asking("0", accessModes=())) == [
        "spec.accessModes: Required value: at least 1 access mode is required",
        'spec.resources[storage]: Invalid value: "0": must be greater than zero',
    ]
    assert errors(asking(accessModes=["ReadWriteOncePod", "ReadWriteOnce"])) == [
        "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"
    ]


def test_old_and_new_way_to_name_a_source_agree() -> None:
    snapshot = TypedLocalObjectReference(
        apiGroup="snapshot.storage.k8s.io", kind="VolumeSnapshot", name="s"
    )
    named = asking(dataSource=snapshot)
    assert named.spec.dataSourceRef == TypedObjectReference(
        apiGroup="snapshot.storage.k8s.io", kind="VolumeSnapshot", name="s"
    )
    populator = TypedObjectReference(apiGroup="example.com", kind="Filler", name="f")
    assert asking(dataSourceRef=populator).spec.dataSource is not None
    odd = TypedLocalObjectReference(apiGroup="example.com", kind="Filler", name="f")
    assert asking(dataSource=odd).spec.dataSource is None


def test_a_bound_claim_may_only_grow() -> None:
    old = bound("2Gi", capacity="1Gi")
    assert changes(bound("3Gi", "1Gi"), old) == []
    assert changes(bound("1Gi", "1Gi"), old) == [
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    ]


def test_the_rest_of_a_claim_is_for_ever() -> None:
    old = asking()
    assert changes(asking(volumeName="pv1"), old) == []
    assert changes(asking(storageClassName="fast"), old) == []
    (error,) = changes(asking("2Gi"), old)
    assert error.startswith("spec: Forbidden: spec is immutable after creation except")


def test_the_columns_show_what_was_got() -> None:
    def row(obj: PersistentVolumeClaim) -> dict[str, object]:
        return {column.name: column.cell(obj) for column in RESOURCE.presentation.columns}

    assert row(asking())["Capacity"] == ""
    got = row(bound("1Gi", "2Gi"))
    assert (got["Volume"], got["Capacity"], got["Access Modes"]) == ("pv1", "2Gi", "RWO,RWX")
    assert got["VolumeAttributesClass"] == "<unset>"
