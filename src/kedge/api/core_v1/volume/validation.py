"""Validation of volumes: exactly one source each, and the rules of each source."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from kedge.api import rules
from kedge.api.core_v1 import path_rules
from kedge.api.core_v1.claim_validation import validate_claim_template
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.pod.container_validation import PULL_POLICIES
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.volume import projection_validation, storage_validation
from kedge.api.core_v1.volume.volume import (
    CSIVolumeSource,
    EmptyDirVolumeSource,
    EphemeralVolumeSource,
    GitRepoVolumeSource,
    HostPathVolumeSource,
    ImageVolumeSource,
    PersistentVolumeClaimVolumeSource,
    Volume,
)
from kedge.machinery import names
from kedge.machinery.errors import ErrorScope, FieldError

_HOST_PATH_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_LONGEST_DRIVER: Final = 63


class Checked(NamedTuple):
    """The result of the validation of a pod's volumes."""

    sound: Mapping[str, Volume]
    """The valid volumes, by name."""
    unportable: Set[str]
    """Names of the valid volumes that only kedge accepts."""
    errors: Sequence[FieldError]


def validate_volumes(spec: PodSpec, pod_name: str, *, of_pod: bool) -> Checked:
    """Return the valid volumes, and everything wrong with the others.

    `pod_name` is empty if it is not known, as in a template; claims named after it go unchecked.
    """
    volumes = spec.volumes
    sound: dict[str, Volume] = {}
    unportable: set[str] = set()
    errors: list[FieldError] = []
    made = {f"{pod_name}-{v.name}" for v in volumes if pod_name and v.ephemeral is not None}
    for i, volume in enumerate(volumes):
        found = list(_volume(volume, pod_name, of_pod))
        if volume.downwardAPI is not None or volume.projected is not None:
            found += projection_validation.containers_of_files(volume, spec)
        if volume.name in sound:
            found.append(FieldError.duplicate("name", volume.name))
        if all(error.scope is ErrorScope.EXTENSION for error in found):
            sound[volume.name] = volume
            if found:
                unportable.add(volume.name)
        claim = volume.persistentVolumeClaim
        if claim is not None and claim.claimName in made:
            why = "must not reference a PVC that gets created for an ephemeral volume"
            at = "persistentVolumeClaim.claimName"
            found.append(FieldError.invalid(at, claim.claimName, why))
        errors.extend(within(f"[{i}]", found))
    return Checked(sound, unportable, errors)


def _volume(volume: Volume, pod_name: str, of_pod: bool) -> Iterator[FieldError]:
    given = 0
    for source, (path, check) in _SOURCES.items():
        value = getattr(volume, source)
        if value is None:
            continue
        given += 1
        if given > 1:
            at = _BLAMED.get(source, source)
            yield FieldError.forbidden(at, "may not specify more than 1 volume type")
            continue
        if source == "image" and of_pod and not value.reference:
            # The owner of a template may fill it in before it creates a pod.
            yield FieldError.required("image.reference")
        yield from within(path, check(value))
    if not given:
        yield FieldError.required("", "must specify a volume type")
    yield from _named_after(volume, pod_name)
    if not volume.name:
        yield FieldError.required("name")
    elif found := names.dns_label(volume.name):
        yield from rules.problems("name", volume.name, found)


def _named_after(volume: Volume, pod_name: str) -> Iterator[FieldError]:
    iscsi = volume.iscsi
    portal = f"{volume.name}:{iscsi.targetPortal}" if iscsi is not None else ""
    if iscsi is not None and iscsi.initiatorName is not None and len(portal) > 64:
        why = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters "
            "if iscsi.initiatorName is specified."
        )
        yield FieldError.invalid("name", volume.name, why)
    if volume.ephemeral is not None and pod_name and volume.name:
        claim = f"{pod_name}-{volume.name}"
        for problem in names.dns_subdomain(claim):
            yield FieldError.invalid("name", volume.name, f'PVC name "{claim}": {problem}')


def _empty_dir(source: EmptyDirVolumeSource) -> Iterator[FieldError]:
    if source.sizeLimit is not None and source.sizeLimit.nanos < 0:
        why = "SizeLimit field must be a valid resource quantity"
        yield FieldError.forbidden("sizeLimit", why)


def validate_host_path(source: HostPathVolumeSource) -> Iterator[FieldError]:
    """Everything wrong with a directory of the node."""
    if not source.path:
        yield FieldError.required("path")
        return
    yield from path_rules.no_backsteps("path", source.path)
    if source.type is not None and source.type not in _HOST_PATH_TYPES:
        yield FieldError.not_supported("type", source.type, _HOST_PATH_TYPES)


def _git_repo(source: GitRepoVolumeSource) -> Iterator[FieldError]:
    yield from storage_validation.required(source, "repository")
    yield from path_rules.descending("directory", source.directory)


def _claim(source: PersistentVolumeClaimVolumeSource) -> Iterator[FieldError]:
    yield from storage_validation.required(source, "claimName")


def _csi(source: CSIVolumeSource) -> Iterator[FieldError]:
    yield from validate_driver_name("driver", source.driver)
    ref = source.nodePublishSecretRef
    if ref is not None:
        if not ref.name:
            yield FieldError.required("nodePublishSecretRef.name")
        else:
            yield from rules.problems("name", ref.name, names.dns_subdomain(ref.name))


def validate_driver_name(path: str, driver: str) -> Iterator[FieldError]:
    """Everything wrong with the name of a CSI driver."""
    if not driver:
        yield FieldError.required(path)
        return
    if len(driver) > _LONGEST_DRIVER:
        yield FieldError.too_long(path, _LONGEST_DRIVER)
    yield from rules.problems(path, driver, names.dns_subdomain(driver.lower()))


def _ephemeral(source: EphemeralVolumeSource) -> Iterator[FieldError]:
    template = source.volumeClaimTemplate
    if template is None:
        yield FieldError.required("volumeClaimTemplate")
    else:
        yield from within("volumeClaimTemplate", validate_claim_template(template))


def _image(source: ImageVolumeSource) -> Iterator[FieldError]:
    yield from rules.one_of("pullPolicy", source.pullPolicy, PULL_POLICIES)


Check = Callable[[Any], Iterator[FieldError]]

# In the order in which upstream looks for them: of two sources the later one is blamed.
_SOURCES: Final[Mapping[str, tuple[str, Check]]] = {
    "emptyDir": ("emptyDir", _empty_dir),
    "hostPath": ("hostPath", validate_host_path),
    "gitRepo": ("gitRepo", _git_repo),
    "gcePersistentDisk": ("persistentDisk", storage_validation.gce_disk),
    "awsElasticBlockStore": ("awsElasticBlockStore", storage_validation.aws_disk),
    "secret": ("secret", projection_validation.secret),
    "nfs": ("nfs", storage_validation.nfs),
    "iscsi": ("iscsi", storage_validation.iscsi),
    "glusterfs": ("glusterfs", storage_validation.glusterfs),
    "flocker": ("flocker", storage_validation.flocker),
    "persistentVolumeClaim": ("persistentVolumeClaim", _claim),
    "rbd": ("rbd", storage_validation.rbd),
    "cinder": ("cinder", storage_validation.cinder),
    "cephfs": ("cephfs", storage_validation.cephfs),
    "quobyte": ("quobyte", storage_validation.quobyte),
    "downwardAPI": ("downwardAPI", projection_validation.downward_api),
    "fc": ("fc", storage_validation.fibre_channel),
    "flexVolume": ("flexVolume", storage_validation.flex),
    "configMap": ("configMap", projection_validation.config_map),
    "azureFile": ("azureFile", storage_validation.azure_file),
    "vsphereVolume": ("vsphereVolume", storage_validation.vsphere),
    "photonPersistentDisk": ("photonPersistentDisk", storage_validation.photon_disk),
    "portworxVolume": ("portworxVolume", storage_validation.portworx),
    "azureDisk": ("azureDisk", storage_validation.azure_disk),
    "storageos": ("storageos", storage_validation.storage_os),
    "projected": ("projected", projection_validation.projected),
    "scaleIO": ("scaleIO", storage_validation.scale_io),
    "csi": ("csi", _csi),
    "ephemeral": ("ephemeral", _ephemeral),
    "image": ("image", _image),
}

_BLAMED: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""Where upstream misspells the source that is one too many."""
