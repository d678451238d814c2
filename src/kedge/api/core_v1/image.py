"""References to images: the tag that one names, and when to pull it by default."""

import re
from typing import Final

from kedge.machinery.short_cache import short_cache

_DOMAIN_PART: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN: Final = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_NAME_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    rf"(?:{_DOMAIN}/)?{_NAME_PART}(?:/{_NAME_PART})*"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
).fullmatch


def tag(image: str) -> str:
    """The tag that `image` names, `latest` if it says nothing, none for a digest or nonsense."""
    parts = _REFERENCE(image)
    if parts is None:
        return ""
    return parts["tag"] or ("" if parts["digest"] else "latest")


@short_cache(4096)
def pull_policy(image: str) -> str:
    """When an image is pulled if its user does not say."""
    return "Always" if tag(image) == "latest" else "IfNotPresent"
