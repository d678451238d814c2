"""The key on disk."""

from pathlib import Path

import pytest

from kedge.apiserver.authentication.keys import SigningKey, SigningKeyError


@pytest.fixture
def directory(key: SigningKey, tmp_path: Path) -> Path:
    """A directory that holds a key."""
    for name in ("sa.key", "sa.pub"):
        (tmp_path / name).write_bytes((key._private.parent / name).read_bytes())
    return tmp_path


def test_a_new_key_is_for_its_owner_only(key: SigningKey) -> None:
    files = {path.name: path.stat().st_mode & 0o777 for path in key._private.parent.iterdir()}
    assert files == {"sa.key": 0o600, "sa.pub": 0o600}


def test_the_key_outlives_a_restart(key: SigningKey, directory: Path) -> None:
    again = SigningKey(directory)
    assert again.id == key.id
    assert again.signed(b"x", key.sign(b"x"))
    assert not again.signed(b"y", key.sign(b"x"))


def test_a_key_that_others_could_read_is_closed(directory: Path) -> None:
    (directory / "sa.key").chmod(0o644)
    SigningKey(directory).prepare()
    assert (directory / "sa.key").stat().st_mode & 0o777 == 0o600


def test_the_public_half_is_made_anew(key: SigningKey, directory: Path) -> None:
    (directory / "sa.pub").unlink()
    SigningKey(directory).prepare()
    assert (directory / "sa.pub").read_bytes() == key._public.read_bytes()


@pytest.mark.parametrize("content", [b"", b"garbage", b"-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_a_damaged_key_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "sa.key"
    path.write_bytes(content)
    with pytest.raises(SigningKeyError, match="holds no private key"):
        SigningKey(tmp_path).prepare()
    assert path.read_bytes() == content


def test_a_key_of_another_sort_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "sa.key").write_bytes(pem)
    with pytest.raises(SigningKeyError, match="not an RSA key"):
        SigningKey(tmp_path).prepare()
