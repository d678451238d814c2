"""Envelope encryption: seeds that the plugin keeps, and what happens while it is away."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from kedge.apiserver.kms import messages as m
from kedge.apiserver.kms.envelope import EnvelopeCipher, SeedCipher, check
from kedge.apiserver.kms.key_metrics import KeyMetrics
from kedge.deviceplugin import wire
from kedge.storage.encryption import KeyPending
from kedge.storage.store import KeyServiceError
from kedge.testing.clock import FakeClock
from kedge.testing.kms_plugin import TestKeyPlugin

ABOUT = b"/registry/secrets/default/a"


async def started(plugin: TestKeyPlugin, clock: FakeClock | None = None) -> EnvelopeCipher:
    clock = clock or FakeClock()
    cipher = EnvelopeCipher("test", plugin, clock, KeyMetrics(clock))
    await cipher.refresh()
    return cipher


async def opened(cipher: EnvelopeCipher, value: bytes, about: bytes = ABOUT) -> bytes:
    """Decrypt as a store does."""
    try:
        return cipher.decrypt(value, about)
    except KeyPending as pending:
        await pending.fetch()
    return cipher.decrypt(value, about)


async def test_a_value_has_the_form_of_kubernetes() -> None:
    plugin = TestKeyPlugin()
    found = wire.decode(m.EncryptedObject, (await started(plugin)).encrypt(b"v", ABOUT))
    assert (found.key_id, found.source_type) == ("one", m.SEED)
    assert found.annotations == plugin.annotations
    assert len(found.data) == 32 + 12 + 1 + 16
    assert len(found.source) == 12 + 32 + 16


async def test_another_server_asks_the_plugin_for_a_seed_once() -> None:
    plugin = TestKeyPlugin()
    writer, reader = await started(plugin), await started(plugin)
    values = [writer.encrypt(b"v%d" % i, ABOUT) for i in range(3)]
    assert writer.decrypt(values[0], ABOUT) == b"v0"
    plugin.calls.clear()
    assert [await opened(reader, value) for value in values] == [b"v0", b"v1", b"v2"]
    assert plugin.calls == ["Decrypt"]


def test_each_value_has_a_key_of_its_own() -> None:
    cipher = SeedCipher(b"s" * 32)
    one, other = cipher.encrypt(b"v", b""), cipher.encrypt(b"v", b"")
    assert one[:32] != other[:32]
    with pytest.raises(ValueError, match="does not fit"):
        cipher.decrypt(one[:32] + other[32:], b"")
    with pytest.raises(ValueError, match="shorter"):
        cipher.decrypt(one[:31], b"")


async def test_a_value_that_was_moved_or_changed_is_refused() -> None:
    cipher = await started(TestKeyPlugin())
    value = cipher.encrypt(b"v", ABOUT)
    with pytest.raises(ValueError, match="does not fit"):
        cipher.decrypt(value, b"/registry/secrets/default/b")
    found = wire.decode(m.EncryptedObject, value)
    for changed in (
        replace(found, data=found.data[:-1]),
        replace(found, data=b""),
        replace(found, source_type=2),
        replace(found, source=b""),
        replace(found, key_id=""),
    ):
        with pytest.raises(ValueError, match=r"does not fit|empty|unknown|has 0 bytes"):
            cipher.decrypt(wire.encode(changed), ABOUT)
    with pytest.raises(wire.Malformed):
        cipher.decrypt(b"\xff" * 9, ABOUT)


async def test_the_key_of_the_plugin_is_rotated() -> None:
    plugin = TestKeyPlugin()
    cipher = await started(plugin)
    value = cipher.encrypt(b"v", ABOUT)
    await cipher.refresh()
    assert plugin.calls.count("Encrypt") == 1
    assert not cipher.is_stale(value)
    plugin.key_id = "two"
    await cipher.refresh()
    assert cipher.is_stale(value)
    assert not cipher.is_stale(cipher.encrypt(b"v", ABOUT))
    assert cipher.decrypt(value, ABOUT) == b"v"


async def test_while_the_plugin_is_away_known_seeds_read_and_write_for_a_while() -> None:
    plugin, clock = TestKeyPlugin(), FakeClock()
    cipher = await started(plugin, clock)
    value = cipher.encrypt(b"v", ABOUT)
    plugin.failure = "away"
    with pytest.raises(KeyServiceError, match=r'key service "test": away'):
        await cipher.refresh()
    await clock.advance(timedelta(minutes=2).total_seconds())
    assert cipher.decrypt(cipher.encrypt(b"w", ABOUT), ABOUT) == b"w"
    await clock.advance(timedelta(minutes=2).total_seconds())
    with pytest.raises(KeyServiceError, match="not well"):
        cipher.encrypt(b"w", ABOUT)
    assert cipher.decrypt(value, ABOUT) == b"v"
    plugin.failure = ""
    await cipher.refresh()
    assert cipher.decrypt(cipher.encrypt(b"w", ABOUT), ABOUT) == b"w"


async def test_before_the_plugin_answers_nothing_is_written() -> None:
    clock = FakeClock()
    cipher = EnvelopeCipher("test", TestKeyPlugin(), clock, KeyMetrics(clock))
    with pytest.raises(KeyServiceError, match="has not answered yet"):
        cipher.encrypt(b"v", ABOUT)


@pytest.mark.parametrize(
    ("field", "value"),
    [("healthz", "sick"), ("version", "v1"), ("key_id", ""), ("key_id", "x" * 1025)],
)
async def test_a_plugin_that_is_not_well_is_not_used(field: str, value: str) -> None:
    plugin = TestKeyPlugin()
    setattr(plugin, field, value)
    with pytest.raises(KeyServiceError):
        await started(plugin)


@pytest.mark.parametrize(
    "annotations", [{"x": b""}, {"Bad Key.x": b""}, {"a.b": b"x" * (33 << 10)}], ids=len
)
def test_bad_annotations_are_refused(annotations: dict[str, bytes]) -> None:
    found = m.EncryptedObject(key_id="k", source=b"s", annotations=annotations)
    with pytest.raises(ValueError, match="annotation"):
        check(found)
