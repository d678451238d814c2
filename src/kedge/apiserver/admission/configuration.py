"""AdmissionConfiguration: the file with the configuration of admission plugins."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kedge.api.pod_security.configuration import PodSecurityConfiguration, configuration_of
from kedge.apiserver import configuration_file

_API_VERSIONS: Final = ("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1")


class AdmissionConfiguration(msgspec.Struct, frozen=True):
    """The configurations of the plugins that have one."""

    pod_security: PodSecurityConfiguration = PodSecurityConfiguration()


UNCONFIGURED: Final = AdmissionConfiguration()


class _PluginEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    path: str = ""
    configuration: Any = None


class _AdmissionFile(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    plugins: Sequence[_PluginEntry] = ()


def read(path: Path) -> AdmissionConfiguration:
    """Return the configurations in a file; a ConfigurationFileError says what is wrong."""
    return configuration_file.read(path, lambda document: _parsed(document, path.parent))


def _parsed(document: Any, directory: Path) -> AdmissionConfiguration:
    file = msgspec.convert(document, _AdmissionFile)
    configuration_file.check_kind(
        file.api_version, file.kind, "AdmissionConfiguration", _API_VERSIONS
    )
    documents = {entry.name: _configuration(entry, directory) for entry in file.plugins}
    if unused := sorted({*documents} - {"PodSecurity"}):
        raise ValueError(f'plugin "{unused[0]}" has no configuration: only PodSecurity has one')
    found = documents.get("PodSecurity")
    if found is None:
        return UNCONFIGURED
    return AdmissionConfiguration(configuration_of(found))


def _configuration(entry: _PluginEntry, directory: Path) -> Any:
    """Return the configuration of a plugin, from the file itself or the one that it names."""
    if entry.configuration is not None or not entry.path:
        return entry.configuration
    return configuration_file.document(directory / entry.path)
