"""XSalsa20-Poly1305: the vector of NaCl, sizes around blocks, and values that were changed."""

import hashlib
from itertools import pairwise

import pytest

from kedge.machinery.secretbox import WrongKey, open_sealed, seal

KEY = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
NONCE = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
MESSAGE = bytes.fromhex(
    "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c"
    "61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f"
    "21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705"
)
SEALED = bytes.fromhex(
    "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1"
    "186ac0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab9321645"
    "48e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b"
    "1f654cb45a74e355a5"
)


LONG = "237b927c6da22627003e7b19044bb3a10a20d359e5b54aff4a138250e85eb212"


def test_the_vector_of_nacl() -> None:
    assert seal(KEY, NONCE, MESSAGE) == SEALED
    assert open_sealed(KEY, NONCE, SEALED) == MESSAGE


def test_a_long_value_as_libsodium_seals_it() -> None:
    sealed = seal(KEY, NONCE, bytes(range(256)) * 300)
    assert hashlib.sha256(sealed).hexdigest() == LONG


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 95, 96, 97, 40_000])
def test_every_size_is_opened_again(size: int) -> None:
    message = bytes(i % 251 for i in range(size))
    sealed = seal(KEY, NONCE, message)
    assert len(sealed) == size + 16
    assert open_sealed(KEY, NONCE, sealed) == message


def test_blocks_do_not_repeat() -> None:
    sealed = seal(KEY, NONCE, bytes(64 * 1100))[16:]
    blocks = [sealed[i : i + 64] for i in range(0, len(sealed), 64)]
    assert len(set(blocks)) == len(blocks)
    assert all(one != other for one, other in pairwise(blocks))


@pytest.mark.parametrize(
    "sealed", [b"", SEALED[:10], SEALED[:-1], SEALED + b"\0", b"\0" + SEALED[1:]]
)
def test_a_changed_value_is_refused(sealed: bytes) -> None:
    with pytest.raises(WrongKey):
        open_sealed(KEY, NONCE, sealed)


def test_another_key_or_nonce_is_refused() -> None:
    with pytest.raises(WrongKey):
        open_sealed(KEY[::-1], NONCE, SEALED)
    with pytest.raises(WrongKey):
        open_sealed(KEY, NONCE[::-1], SEALED)
