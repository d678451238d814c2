"""The image map: replaces image names by others, such as `host`."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, Self

import msgspec

from kedge.node.images.reference import ImageReference, InvalidImageName, without_version

HOST: Final = "host"
"""The built-in image: a view of the machine's own file system."""
_HOST_REFERENCE: Final = ImageReference.parse(HOST)


class InvalidMappingRule(ValueError):
    """A rule of the image map is invalid."""


class ImageMappingRule(msgspec.Struct, frozen=True):
    """Maps every image whose name matches the pattern to the target."""

    pattern: str
    target: str
    """`host`, or the name of another image."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `PATTERN=TARGET`."""
        # Only a digest could contain more separators, and it contains no "=".
        pattern, equals, target = (part.strip() for part in text.rpartition("="))
        if not equals or not pattern or not target:
            raise InvalidMappingRule(
                f'"{text}" maps no images: write PATTERN=host or PATTERN=IMAGE'
            )
        if any(sign.isspace() for sign in pattern):
            raise InvalidMappingRule(
                f'"{pattern}" is no pattern for names of images: it holds a blank'
            )
        try:
            ImageReference.parse(target)
        except InvalidImageName as error:
            raise InvalidMappingRule(f'"{target}" is no name of an image: {error}') from error
        return cls(pattern, target)

    def fits(self, name: ImageReference) -> bool:
        """Return whether the name matches, in its short form or in full, with its tag or digest."""
        whole = {name.familiar, str(name)}
        if not _names_version(self.pattern):
            whole |= {without_version(name.familiar), name.repository}
        return any(fnmatchcase(form, self.pattern) for form in whole)


class ImageMapping(msgspec.Struct, frozen=True):
    """Rules in order; the first match counts."""

    rules: tuple[ImageMappingRule, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        return cls(tuple(map(ImageMappingRule.parse, texts)))

    def target(self, name: ImageReference) -> ImageReference | None:
        """Return the target of the first matching rule, or None; targets are not mapped again."""
        if is_host(name):
            return None
        for rule in self.rules:
            if rule.fits(name):
                return ImageReference.parse(rule.target)
        return None


def is_host(name: ImageReference) -> bool:
    return name == _HOST_REFERENCE


def _names_version(pattern: str) -> bool:
    """Return whether the pattern names a tag or digest; one that does not matches all of them."""
    return ":" in pattern.rpartition("/")[2] or "@" in pattern
