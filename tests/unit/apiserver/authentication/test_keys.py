"""The key on disk."""

from concurrent.futures import ThreadPoolExecutor
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


def test_a_key_that_signs_wrongly_is_refused(directory: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    path = directory / "sa.key"
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    n = key.private_numbers()
    public = rsa.RSAPublicNumbers(n.public_numbers.e + 2, n.public_numbers.n)
    damaged = rsa.RSAPrivateNumbers(n.p, n.q, n.d, n.dmp1, n.dmq1, n.iqmp, public)
    path.write_bytes(
        damaged.private_key(unsafe_skip_rsa_key_validation=True).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    with pytest.raises(SigningKeyError, match="holds no private key"):
        SigningKey(directory).prepare()


def test_a_key_is_made_once_by_processes_that_start_together(tmp_path: Path) -> None:
    both = [SigningKey(tmp_path), SigningKey(tmp_path)]
    with ThreadPoolExecutor() as threads:
        list(threads.map(SigningKey.prepare, both))
    assert both[0].id == both[1].id


def test_a_key_is_complete_with_both_halves_for_its_owner_only(directory: Path) -> None:
    (directory / "sa.key").chmod(0o644)
    assert not SigningKey(directory).is_made
    (directory / "sa.key").chmod(0o600)
    assert SigningKey(directory).is_made
    (directory / "sa.pub").unlink()
    assert not SigningKey(directory).is_made
    assert not SigningKey(directory / "none").is_made
