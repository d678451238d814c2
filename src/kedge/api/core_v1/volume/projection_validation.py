"""Rules for volume sources whose files are made from API objects."""

from collections.abc import Iterator
from typing import Final

from kedge.api import rules
from kedge.api.core_v1 import path_rules
from kedge.api.core_v1.nesting import each, within
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.reference_validation import (
    FILE_FIELDS,
    container_names,
    named_container,
    validate_container_field_ref,
    validate_field_ref,
    validate_resource_ref,
)
from kedge.api.core_v1.volume.projection import (
    ClusterTrustBundleProjection,
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    KeyToPath,
    PodCertificateProjection,
    ProjectedVolumeSource,
    SecretProjection,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    VolumeProjection,
)
from kedge.api.core_v1.volume.volume import Volume
from kedge.api.label_selector import validate_label_selector
from kedge.machinery import names
from kedge.machinery.errors import FieldError

_KEY_TYPES: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_SHORTEST_TOKEN: Final = 600
_LONGEST_TOKEN: Final = 2**32
_CLASH: Final = "conflicting duplicate paths"
_CERTIFICATE_FILES: Final = ("credentialBundlePath", "keyPath", "certificateChainPath")


def secret(source: SecretVolumeSource) -> Iterator[FieldError]:
    if not source.secretName:
        yield FieldError.required("secretName")
    yield from path_rules.mode("defaultMode", source.defaultMode)
    yield from each("items", source.items, _key_to_path)


def config_map(source: ConfigMapVolumeSource) -> Iterator[FieldError]:
    if not source.name:
        yield FieldError.required("name")
    yield from path_rules.mode("defaultMode", source.defaultMode)
    yield from each("items", source.items, _key_to_path)


def downward_api(source: DownwardAPIVolumeSource) -> Iterator[FieldError]:
    yield from path_rules.mode("defaultMode", source.defaultMode)
    # Upstream leaves the file's index out of the path.
    for file in source.items:
        yield from _downward_file(file)


def projected(source: ProjectedVolumeSource) -> Iterator[FieldError]:
    yield from path_rules.mode("defaultMode", source.defaultMode)
    taken: set[str] = set()
    for i, part in enumerate(source.sources):
        yield from _part(part, f"sources[{i}]", taken)


def _part(part: VolumeProjection, at: str, taken: set[str]) -> Iterator[FieldError]:
    if part.secret is not None:
        yield from _keys(part.secret, f"{at}.secret", taken)
    if part.configMap is not None:
        yield from _keys(part.configMap, f"{at}.configMap", taken)
    if part.downwardAPI is not None:
        for file in part.downwardAPI.items:
            yield from within(f"{at}.downwardAPI", _downward_file(file))
            yield from _once(file.path, file.path, taken)
    if part.serviceAccountToken is not None:
        yield from _token(part.serviceAccountToken, f"{at}.serviceAccountToken")
    if part.clusterTrustBundle is not None:
        bundle = part.clusterTrustBundle
        yield from within(f"{at}.clusterTrustBundle", _trust_bundle(bundle))
        yield from _once(bundle.path, bundle.path, taken)
    if part.podCertificate is not None:
        certificate = part.podCertificate
        yield from within(f"{at}.podCertificate", _certificate(certificate))
        for name in _CERTIFICATE_FILES:
            yield from _once(getattr(certificate, name), getattr(certificate, name), taken)
    if sum(getattr(part, name) is not None for name in part.__struct_fields__) > 1:
        yield FieldError.forbidden(at, "may not specify more than 1 volume type per source")


def _keys(
    source: SecretProjection | ConfigMapProjection, at: str, taken: set[str]
) -> Iterator[FieldError]:
    if not source.name:
        yield FieldError.required(f"{at}.name")
    for i, item in enumerate(source.items):
        yield from within(f"{at}.items[{i}]", _key_to_path(item))
        yield from _once(item.path, source.name, taken)


def _once(path: str, blamed: str, taken: set[str]) -> Iterator[FieldError]:
    if path and path in taken:
        yield FieldError.invalid("", blamed, _CLASH)
    taken.add(path)


def _key_to_path(item: KeyToPath) -> Iterator[FieldError]:
    if not item.key:
        yield FieldError.required("key")
    if not item.path:
        yield FieldError.required("path")
    yield from path_rules.unreserved("path", item.path)
    yield from path_rules.mode("mode", item.mode)


def _downward_file(file: DownwardAPIVolumeFile) -> Iterator[FieldError]:
    if not file.path:
        yield FieldError.required("path")
    yield from path_rules.unreserved("path", file.path)
    if file.fieldRef is not None:
        yield from within("fieldRef", validate_field_ref(file.fieldRef, FILE_FIELDS))
    elif file.resourceFieldRef is not None:
        errors = validate_resource_ref(file.resourceFieldRef, in_volume=True)
        yield from within("resourceFieldRef", errors)
    for name in _CONTAINER_FIELDS:
        if (ref := getattr(file, name)) is not None:
            yield from within(name, validate_container_field_ref(ref))
    yield from _one_source(file)
    yield from path_rules.mode("mode", file.mode)


def _one_source(file: DownwardAPIVolumeFile) -> Iterator[FieldError]:
    given = [name for name in _FILE_SOURCES if getattr(file, name) is not None]
    if not given:
        yield FieldError.required("", "one of fieldRef and resourceFieldRef is required")
    elif given == ["fieldRef", "resourceFieldRef"]:
        why = "fieldRef and resourceFieldRef can not be specified simultaneously"
        yield FieldError.invalid("", "resource", why)
    elif len(given) > 1:
        why = "fieldRef, resourceFieldRef and containerFieldRef are mutually exclusive"
        yield FieldError.invalid("", "resource", why)


_CONTAINER_FIELDS: Final = ("containerFieldRef", "containerfieldRef")
_FILE_SOURCES: Final = ("fieldRef", "resourceFieldRef", *_CONTAINER_FIELDS)


def containers_of_files(volume: Volume, spec: PodSpec) -> Iterator[FieldError]:
    """Containers that files of the volume are to tell of, and that are not in the pod."""
    if volume.downwardAPI is not None:
        for file in volume.downwardAPI.items:
            yield from within("downwardAPI", _container_of_file(file, spec))
    for i, part in enumerate(volume.projected.sources if volume.projected is not None else ()):
        for file in part.downwardAPI.items if part.downwardAPI is not None else ():
            errors = _container_of_file(file, spec)
            yield from within(f"projected.sources[{i}].downwardAPI", errors)


def _container_of_file(file: DownwardAPIVolumeFile, spec: PodSpec) -> Iterator[FieldError]:
    if file.fieldRef is not None:
        _, errors = named_container(file.fieldRef, spec)
        yield from within("fieldRef", errors)
    if file.containerFieldRef is None or not file.path:
        return
    container, slash, rest = file.path.partition("/")
    if not slash or not container or not rest.strip("/"):
        why = "must be of the form <container name>/<file>"
        yield FieldError.invalid("path", file.path, why)
    elif not any(
        container in container_names(those) for those in (spec.containers, spec.initContainers)
    ):
        why = f'container "{container}" not found in the pod'
        yield FieldError.invalid("path", file.path, why)


def _token(token: ServiceAccountTokenProjection, at: str) -> Iterator[FieldError]:
    seconds = token.expirationSeconds or 0
    if seconds < _SHORTEST_TOKEN:
        why = "may not specify a duration less than 10 minutes"
        yield FieldError.invalid(f"{at}.expirationSeconds", seconds, why)
    if seconds > _LONGEST_TOKEN:
        why = "may not specify a duration larger than 2^32 seconds"
        yield FieldError.invalid(f"{at}.expirationSeconds", seconds, why)
    # Upstream blames the volume for the path.
    if not token.path:
        yield FieldError.required("path")
    else:
        yield from path_rules.unreserved("path", token.path)


def _trust_bundle(bundle: ClusterTrustBundleProjection) -> Iterator[FieldError]:
    if bundle.name is not None and bundle.signerName is not None:
        yield FieldError.invalid("", bundle, "only one of name and signerName may be used")
    elif bundle.name is not None:
        if not bundle.name:
            yield FieldError.required("name", "must be a valid object name")
        if bundle.labelSelector is not None:
            why = "labelSelector must be unset if name is specified"
            yield FieldError.invalid("labelSelector", bundle.labelSelector, why)
    elif bundle.signerName is not None:
        if not bundle.signerName:
            yield FieldError.required("signerName", "must be a valid signer name")
        yield from validate_label_selector(bundle.labelSelector, "labelSelector")
    else:
        yield FieldError.required("", "either name or signerName must be specified")
    if not bundle.path:
        yield FieldError.required("path")
    yield from path_rules.unreserved("path", bundle.path)


def _certificate(certificate: PodCertificateProjection) -> Iterator[FieldError]:
    if not certificate.signerName:
        yield FieldError.required("signerName")
    else:
        host, _, _ = certificate.signerName.partition("/")
        yield from rules.problems("signerName", host, names.dns_subdomain(host))
    if certificate.keyType not in _KEY_TYPES:
        yield FieldError.not_supported("keyType", certificate.keyType, _KEY_TYPES)
    longest = certificate.maxExpirationSeconds
    if longest is not None and longest < 3600:
        why = "if provided, maxExpirationSeconds must be >= 3600"
        yield FieldError.invalid("maxExpirationSeconds", longest, why)
    for name in _CERTIFICATE_FILES:
        yield from path_rules.unreserved(name, getattr(certificate, name))
    if not any(getattr(certificate, name) for name in _CERTIFICATE_FILES):
        why = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        yield FieldError.required("", why)
