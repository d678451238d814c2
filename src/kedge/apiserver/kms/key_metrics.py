"""The metrics of key management services, with the names and labels of kube-apiserver."""

import base64
import hashlib
import socket
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

from kedge.apiserver.histogram import LabelledMetric, MetricHistogram
from kedge.apiserver.kms.measured_plugin import kms_latency
from kedge.apiserver.telemetry import Telemetry
from kedge.machinery.clock import Clock

FROM_STORAGE: Final = "from_storage"
TO_STORAGE: Final = "to_storage"
MOST_KEYS: Final = 100
"""Key ids whose use is counted, as upstream: a plugin chooses its own."""
GENERATION_BOUNDS: Final = tuple(5e-6 * 2**n for n in range(14))
_ENVELOPE: Final = "apiserver_envelope_encryption"


class KeyUse(NamedTuple):
    """How often a key was used, and when last, in seconds since 1970."""

    times: int
    last: float


class KeyMetrics:
    """Counts the work of all key services of a server."""

    def __init__(self, clock: Clock, server: str = "") -> None:
        """`server` names the API server, by default as upstream names one on this host."""
        self._clock = clock
        self._server = _hash(server or _identity(socket.gethostname()))
        self.latency = kms_latency()
        self.invalid_key_ids = LabelledMetric("provider_name", "error")
        """Answers of Status with a key id that is `empty` or `too_long`."""
        self.seeds: dict[str, int] = {}
        """Decrypted seeds in memory, by provider."""
        self.cache_misses = 0
        """Values whose seed the plugin had to decrypt."""
        self.generations = MetricHistogram(GENERATION_BOUNDS)
        self.failed_generations = 0
        self._lock = threading.Lock()
        self._uses: dict[tuple[str, str, str], KeyUse] = {}
        self._reported: dict[tuple[str, str], float] = {}

    def used(self, sort: str, provider: str, key_id: str) -> None:
        """Count the use of a key for a value `from_storage` or `to_storage`."""
        key = sort, provider, key_id
        with self._lock:  # large values are encrypted in threads
            found = self._uses.pop(key, None)
            if found is None and len(self._uses) >= MOST_KEYS:
                self._uses.pop(next(iter(self._uses)))
            self._uses[key] = KeyUse(1 + (found.times if found else 0), self._now())

    def reported(self, provider: str, key_id: str) -> None:
        """Note that a plugin named a key as its present one."""
        self._reported.pop((provider, key_id), None)
        if len(self._reported) >= MOST_KEYS:
            self._reported.pop(next(iter(self._reported)))
        self._reported[provider, key_id] = self._now()

    def add_to(self, telemetry: Telemetry) -> None:
        """Add all metrics to those of the server."""
        telemetry.histogram(
            f"{_ENVELOPE}_kms_operations_latency_seconds",
            "Calls of key management services, by seconds.",
            self.latency.histograms,
        )
        telemetry.counter(
            f"{_ENVELOPE}_key_id_hash_total",
            "Uses of the keys of key management services.",
            lambda: ((labels, use.times) for labels, use in self._labelled_uses()),
        )
        telemetry.gauge(
            f"{_ENVELOPE}_key_id_hash_last_timestamp_seconds",
            "When a key was last used.",
            lambda: ((labels, use.last) for labels, use in self._labelled_uses()),
        )
        telemetry.gauge(
            f"{_ENVELOPE}_key_id_hash_status_last_timestamp_seconds",
            "When a plugin last named a key as its present one.",
            self._labelled_reports,
        )
        telemetry.counter(
            f"{_ENVELOPE}_invalid_key_id_from_status_total",
            "Answers of plugins with an invalid key id.",
            self.invalid_key_ids.totals,
        )
        telemetry.gauge(
            f"{_ENVELOPE}_dek_source_cache_size",
            "Decrypted seeds of data encryption keys in memory.",
            lambda: ((f'provider_name="{name}"', n) for name, n in sorted(self.seeds.items())),
        )
        self._add_storage_metrics(telemetry)

    def _add_storage_metrics(self, telemetry: Telemetry) -> None:
        telemetry.counter(
            "apiserver_storage_envelope_transformation_cache_misses_total",
            "Values whose data encryption key a plugin had to decrypt.",
            lambda: iter((("", self.cache_misses),)),
        )
        telemetry.histogram(
            "apiserver_storage_data_key_generation_duration_seconds",
            "Time to make the seed of data encryption keys.",
            lambda: iter((("", self.generations),)),
        )
        telemetry.counter(
            "apiserver_storage_data_key_generation_failures_total",
            "Seeds of data encryption keys that could not be made.",
            lambda: iter((("", self.failed_generations),)),
        )

    def _labelled_uses(self) -> Iterator[tuple[str, KeyUse]]:
        with self._lock:
            uses = sorted(self._uses.items())
        for (sort, provider, key_id), use in uses:
            yield f'{self._labels(provider, key_id)},transformation_type="{sort}"', use

    def _labelled_reports(self) -> Iterator[tuple[str, float]]:
        for (provider, key_id), time in sorted(self._reported.items()):
            yield self._labels(provider, key_id), time

    def _labels(self, provider: str, key_id: str) -> str:
        return (
            f'apiserver_id_hash="{self._server}",key_id_hash="{_hash(key_id)}",'
            f'provider_name="{provider}"'
        )

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _hash(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _identity(host: str) -> str:
    digest = hashlib.sha256(host.encode()).digest()[:16]
    return f"apiserver-{base64.b32encode(digest).decode().rstrip('=').lower()}"
