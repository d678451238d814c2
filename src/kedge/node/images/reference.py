"""Image references: parsed like docker's, and formatted in full or in short."""

import re
from typing import Final, Self

import msgspec
from msgspec.structs import replace

HUB: Final = "docker.io"
DEFAULT_TAG: Final = "latest"

_HUB_OF_OLD: Final = "index.docker.io"
_OFFICIAL: Final = "library/"
_LONGEST: Final = 255
_HEX_DIGITS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}

_LABEL: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_PATH: Final = rf"{_COMPONENT}(?:/{_COMPONENT})*"
_WHOLE: Final = re.compile(
    rf"(?P<domain>{_DOMAIN})/(?P<path>{_PATH})(?::(?P<tag>{_TAG.pattern}))?"
    r"(?:@(?P<digest>[A-Za-z0-9_+.-]+:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_IDENTIFIER: Final = re.compile("[a-f0-9]{64}")


class InvalidImageName(ValueError):
    """The text is not an image reference."""


class ImageReference(msgspec.Struct, frozen=True):
    """An image reference with a tag, a digest, or both."""

    domain: str
    path: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a reference; without tag and digest, the tag is `latest`.

        Raises InvalidImageName with the message of docker's parser.
        """
        if _IDENTIFIER.fullmatch(text):
            raise InvalidImageName(
                f"invalid repository name ({text}), cannot specify 64-byte hexadecimal strings"
            )
        domain, rest = _split(text)
        repository = rest.partition(":")[0]
        if repository != repository.lower() and "@" not in repository:
            raise InvalidImageName(
                f"invalid reference format: repository name ({repository}) must be lowercase"
            )
        found = _WHOLE.fullmatch(f"{domain}/{rest}")
        if found is None:
            raise InvalidImageName("invalid reference format")
        tag, digest = found["tag"] or "", found["digest"] or ""
        _check_digest(digest)
        if len(f"{found['domain']}/{found['path']}") > _LONGEST:
            raise InvalidImageName(f"repository name must not be more than {_LONGEST} characters")
        return cls(found["domain"], found["path"], tag or ("" if digest else DEFAULT_TAG), digest)

    @property
    def repository(self) -> str:
        return f"{self.domain}/{self.path}"

    @property
    def key(self) -> str:
        """The key in the store: the digest has precedence over the tag."""
        mark = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.repository}{mark}"

    @property
    def familiar(self) -> str:
        """The shortest unambiguous form, always with the tag."""
        return _short(self.domain, self.path) + self._marks()

    def at(self, digest: str) -> "ImageReference":
        """Return the same repository with this digest."""
        return replace(self, tag="", digest=digest)

    def _marks(self) -> str:
        return (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    def __str__(self) -> str:
        return self.repository + self._marks()


def is_tag(text: str) -> bool:
    """Return whether the text is a valid tag."""
    return _TAG.fullmatch(text) is not None


def without_version(name: str) -> str:
    """Return a reference without its tag and digest."""
    head, slash, last = name.partition("@")[0].rpartition("/")
    return head + slash + last.partition(":")[0]


def _split(text: str) -> tuple[str, str]:
    """Return registry and path; the short forms of Docker Hub are completed."""
    first, slash, rest = text.partition("/")
    if not slash:
        return HUB, _OFFICIAL + text
    is_domain = first == "localhost" or "." in first or ":" in first or first != first.lower()
    domain, path = (first, rest) if is_domain else (HUB, text)
    if domain == _HUB_OF_OLD:
        domain = HUB
    if domain == HUB and "/" not in path:
        path = _OFFICIAL + path
    return domain, path


def _short(domain: str, path: str) -> str:
    whole = f"{domain}/{path}"
    name = path.removeprefix(_OFFICIAL)
    short = path if "/" in name else name
    # Without a prefix, the first part of the path could be taken for a registry.
    return short if _split(short) == (domain, path) else whole


def _check_digest(digest: str) -> None:
    if not digest:
        return
    algorithm, _, value = digest.partition(":")
    if algorithm not in _HEX_DIGITS:
        raise InvalidImageName("unsupported digest algorithm")
    if len(value) != _HEX_DIGITS[algorithm]:
        raise InvalidImageName("invalid checksum digest length")
    if value != value.lower():
        raise InvalidImageName("invalid checksum digest format")
