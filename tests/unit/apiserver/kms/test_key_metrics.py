import hashlib
import os

import pytest

from kedge.apiserver.kms.envelope import EnvelopeCipher
from kedge.apiserver.kms.key_metrics import MOST_KEYS, TO_STORAGE, KeyMetrics
from kedge.apiserver.telemetry import Telemetry
from kedge.storage.encryption import KeyPending
from kedge.storage.store import KeyServiceError
from kedge.testing.clock import FakeClock
from kedge.testing.kms_plugin import TestKeyPlugin

ENVELOPE = "apiserver_envelope_encryption"
ABOUT = b"/registry/secrets/default/a"


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def scraped(metrics: KeyMetrics) -> dict[str, str]:
    telemetry = Telemetry()
    metrics.add_to(telemetry)
    lines = telemetry.text().splitlines()
    found = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: value for name, _, value in found if name.startswith("apiserver_")}


def labels(key_id: str, sort: str = "") -> str:
    more = f',transformation_type="{sort}"' if sort else ""
    server = digest("apiserver-x")
    key = f'key_id_hash="{digest(key_id)}",provider_name="vault"'
    return f'{{apiserver_id_hash="{server}",{key}{more}}}'


async def test_uses_of_keys_are_counted_by_their_hashes() -> None:
    clock = FakeClock()
    metrics, plugin = KeyMetrics(clock, "apiserver-x"), TestKeyPlugin()
    cipher = EnvelopeCipher("vault", plugin, clock, metrics)
    await cipher.refresh()
    began = int(clock.now().timestamp())
    await clock.advance(5)
    value = cipher.encrypt(b"v", ABOUT)
    assert cipher.decrypt(value, ABOUT) == b"v"
    assert cipher.decrypt(value, ABOUT) == b"v"
    found = scraped(metrics)
    for sort, count in (("from_storage", "2"), ("to_storage", "1")):
        of_key = labels("one", sort)
        assert found[f"{ENVELOPE}_key_id_hash_total{of_key}"] == count
        assert found[f"{ENVELOPE}_key_id_hash_last_timestamp_seconds{of_key}"] == str(began + 5)
    status = f"{ENVELOPE}_key_id_hash_status_last_timestamp_seconds{labels('one')}"
    assert found[status] == str(began)
    assert found[f'{ENVELOPE}_dek_source_cache_size{{provider_name="vault"}}'] == "1"
    assert found["apiserver_storage_envelope_transformation_cache_misses_total"] == "0"
    assert found["apiserver_storage_data_key_generation_duration_seconds_count"] == "1"


async def test_a_seed_that_cannot_be_made_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entropy(size: int) -> bytes:
        raise OSError("no entropy")

    clock = FakeClock()
    metrics = KeyMetrics(clock)
    cipher = EnvelopeCipher("vault", TestKeyPlugin(), clock, metrics)
    assert scraped(metrics)["apiserver_storage_data_key_generation_failures_total"] == "0"
    monkeypatch.setattr(os, "urandom", no_entropy)
    with pytest.raises(KeyServiceError, match="no entropy"):
        await cipher.refresh()
    assert scraped(metrics)["apiserver_storage_data_key_generation_failures_total"] == "1"
    assert scraped(metrics)["apiserver_storage_data_key_generation_duration_seconds_count"] == "0"


async def test_a_seed_that_the_plugin_decrypts_is_a_miss() -> None:
    clock, plugin = FakeClock(), TestKeyPlugin()
    writer = EnvelopeCipher("vault", plugin, clock, KeyMetrics(clock))
    metrics = KeyMetrics(clock)
    reader = EnvelopeCipher("vault", plugin, clock, metrics)
    await writer.refresh()
    value = writer.encrypt(b"v", ABOUT)
    with pytest.raises(KeyPending) as pending:
        reader.decrypt(value, ABOUT)
    await pending.value.fetch()
    assert reader.decrypt(value, ABOUT) == b"v"
    assert (metrics.cache_misses, metrics.seeds) == (1, {"vault": 1})


@pytest.mark.parametrize(("key_id", "error"), [("", "empty"), ("k" * 1025, "too_long")])
async def test_invalid_key_ids_are_counted(key_id: str, error: str) -> None:
    clock, plugin = FakeClock(), TestKeyPlugin()
    metrics = KeyMetrics(clock)
    plugin.key_id = key_id
    with pytest.raises(KeyServiceError, match="the key id is empty or longer"):
        await EnvelopeCipher("vault", plugin, clock, metrics).refresh()
    name = f'{ENVELOPE}_invalid_key_id_from_status_total{{provider_name="vault",error="{error}"}}'
    assert scraped(metrics)[name] == "1"


def test_a_plugin_that_changes_its_key_leaves_a_bounded_number_of_series() -> None:
    metrics = KeyMetrics(FakeClock(), "apiserver-x")
    for number in range(2 * MOST_KEYS):
        metrics.used(TO_STORAGE, "vault", f"k{number}")
        metrics.used(TO_STORAGE, "vault", "kept")
        metrics.reported("vault", f"k{number}")
    found = scraped(metrics)
    assert sum(name.startswith(f"{ENVELOPE}_key_id_hash_total") for name in found) == MOST_KEYS
    assert sum("hash_status" in name for name in found) == MOST_KEYS
    kept = f"{ENVELOPE}_key_id_hash_total{labels('kept', TO_STORAGE)}"
    assert found[kept] == str(2 * MOST_KEYS)
