"""Names of images: short and whole, tags and digests, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.node.images.reference import ImageReference, InvalidImageName, is_tag, without_version

DIGEST = "sha256:" + "a1" * 32


@pytest.mark.parametrize(
    ("written", "whole", "familiar"),
    [
        ("busybox", "docker.io/library/busybox:latest", "busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36", "busybox:1.36"),
        ("docker.io/busybox", "docker.io/library/busybox:latest", "busybox:latest"),
        ("index.docker.io/library/busybox", "docker.io/library/busybox:latest", "busybox:latest"),
        ("library/busybox", "docker.io/library/busybox:latest", "busybox:latest"),
        ("me/app", "docker.io/me/app:latest", "me/app:latest"),
        ("docker.io/library/a/b", "docker.io/library/a/b:latest", "library/a/b:latest"),
        ("docker.io/a.b/c", "docker.io/a.b/c:latest", "docker.io/a.b/c:latest"),
        ("localhost/app", "localhost/app:latest", "localhost/app:latest"),
        ("localhost:5000/app:v1", "localhost:5000/app:v1", "localhost:5000/app:v1"),
        ("[::1]:5000/app", "[::1]:5000/app:latest", "[::1]:5000/app:latest"),
        ("Registry/app", "Registry/app:latest", "Registry/app:latest"),
        ("quay.io/a/b__c-d.e:V.1_2", "quay.io/a/b__c-d.e:V.1_2", "quay.io/a/b__c-d.e:V.1_2"),
        (f"app@{DIGEST}", f"docker.io/library/app@{DIGEST}", f"app@{DIGEST}"),
        (f"app:1@{DIGEST}", f"docker.io/library/app:1@{DIGEST}", f"app:1@{DIGEST}"),
    ],
)
def test_a_name_is_made_whole_and_short(written: str, whole: str, familiar: str) -> None:
    reference = ImageReference.parse(written)
    assert str(reference) == whole
    assert reference.familiar == familiar


def test_a_digest_says_more_than_the_tag_beside_it() -> None:
    assert ImageReference.parse(f"app:1@{DIGEST}").key == f"docker.io/library/app@{DIGEST}"
    assert ImageReference.parse("app:1").key == "docker.io/library/app:1"


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("", "invalid reference format"),
        ("Busybox", "repository name (library/Busybox) must be lowercase"),
        ("a b", "invalid reference format"),
        ("app:", "invalid reference format"),
        ("app\n", "invalid reference format"),
        ("-app", "invalid reference format"),
        ("a//b", "invalid reference format"),
        ("http://example.com/a", "invalid reference format"),
        ("app:" + "t" * 129, "invalid reference format"),
        ("a" * 300, "must not be more than 255 characters"),
        ("a1" * 32, "cannot specify 64-byte hexadecimal strings"),
        ("app@sha256:" + "a" * 63, "invalid checksum digest length"),
        ("app@md5:" + "a" * 32, "unsupported digest algorithm"),
        ("app@sha256:" + "A" * 64, "invalid checksum digest format"),
    ],
)
def test_what_is_no_name_is_refused(written: str, complaint: str) -> None:
    with pytest.raises(InvalidImageName) as refused:
        ImageReference.parse(written)
    assert complaint in str(refused.value)


COMPONENT = st.from_regex(r"[a-z0-9]{1,8}(?:[._-][a-z0-9]{1,4})?", fullmatch=True)
DOMAIN = st.sampled_from(["", "docker.io", "quay.io", "localhost", "reg.example.com:5000"])
TAG = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,12}", fullmatch=True)
NAMES = st.builds(
    lambda domain, path, tag, digest: (
        "/".join(filter(None, [domain, *path]))
        + (f":{tag}" if tag else "")
        + (f"@{digest}" if digest else "")
    ),
    DOMAIN,
    st.lists(COMPONENT, min_size=1, max_size=3),
    st.one_of(st.just(""), TAG),
    st.sampled_from(["", DIGEST]),
)


@given(NAMES)
def test_both_spellings_of_a_name_are_read_as_the_same(written: str) -> None:
    reference = ImageReference.parse(written)
    assert ImageReference.parse(str(reference)) == reference
    assert ImageReference.parse(reference.familiar) == reference
    assert ImageReference.parse(reference.key).key == reference.key
    assert without_version(str(reference)) == reference.repository


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_refused(written: str) -> None:
    try:
        reference = ImageReference.parse(written)
    except InvalidImageName:
        return
    assert reference.tag or reference.digest
    assert str(reference).isascii()


def test_a_tag_alone_is_told_from_a_name() -> None:
    assert is_tag("latest")
    assert is_tag("1.36-glibc")
    assert not is_tag("busybox:latest")
    assert not is_tag("quay.io/a")
