"""The settings of registries: mirrors, authorities, and those that are not verified."""

import argparse
import os
import re
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

HUB: Final = "docker.io"
ANY: Final = "*"
"""Stands for every registry in the setting of a mirror."""
_HUB_NAMES: Final = ("docker.io", "index.docker.io", "registry-1.docker.io")
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_HOST: Final = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-f0-9:]+\])(?::[0-9]{{1,5}})?")
_PREFIX: Final = re.compile(r"(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")


class RegistryMirror(NamedTuple):
    """A registry that has the images of another one."""

    registry: str
    """The registry whose images it has, or ANY."""
    url: str
    """Its URL; a path is the beginning of its repositories."""

    def __str__(self) -> str:
        return f"{self.registry}={self.url}"


class RegistryAuthority(NamedTuple):
    """The authority that signs the certificate of a registry."""

    registry: str
    file: Path

    def __str__(self) -> str:
        return f"{self.registry}={self.file}"


def parse_registry(value: str) -> str:
    """Return a registry, HOST or HOST:PORT. Docker Hub is docker.io, whatever it is called."""
    host = value.strip().lower()
    if not _HOST.fullmatch(host):
        raise argparse.ArgumentTypeError(
            f'"{value}" is not a registry: write HOST or HOST:PORT, without https://'
        )
    return HUB if host in _HUB_NAMES else host


def parse_registry_mirror(value: str) -> RegistryMirror:
    """Return the mirror of `REGISTRY=URL`."""
    registry, equals, url = value.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(
            f'"{value}" is not REGISTRY=URL, such as docker.io=https://mirror.example:5000'
        )
    name = ANY if registry.strip() == ANY else parse_registry(registry)
    return RegistryMirror(name, _mirror_url(url.strip()))


def _mirror_url(text: str) -> str:
    url = text.rstrip("/") if "://" in text else f"https://{text.rstrip('/')}"
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("https", "http") and _HOST.fullmatch(parts.netloc.lower())
    except ValueError:
        is_valid = None
    if not is_valid or parts.query or parts.fragment or not _PREFIX.fullmatch(parts.path):
        # The text is not quoted: it may have a password.
        raise argparse.ArgumentTypeError(
            "the mirror is not a URL such as https://mirror.example:5000 or, with the beginning of"
            " its repositories, https://mirror.example/hub; credentials come from pull secrets and"
            " --registry-credentials"
        )
    if parts.path.startswith("/v2"):
        raise argparse.ArgumentTypeError(
            f'leave "/v2" out of {url}: a path is the beginning of the mirror\'s repositories'
        )
    return url


def parse_registry_authority(value: str) -> RegistryAuthority:
    """Return the authority of `REGISTRY=FILE`."""
    registry, equals, file = value.partition("=")
    if not equals or not file:
        raise argparse.ArgumentTypeError(
            f'"{value}" is not REGISTRY=FILE, such as registry.example:5000=/etc/ssl/registry.crt'
        )
    return RegistryAuthority(
        parse_registry(registry), Path(os.path.abspath(os.path.expanduser(file)))
    )
