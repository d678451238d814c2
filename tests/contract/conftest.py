"""A real etcd for the suites of stores."""

from collections.abc import Iterator

import pytest

from kedge.testing.etcd_process import EtcdMissing, EtcdProcess


@pytest.fixture
def etcd() -> Iterator[EtcdProcess]:
    """An empty etcd, which is removed after the test."""
    try:
        process = EtcdProcess.throwaway()
    except EtcdMissing as missing:
        pytest.skip(str(missing))
    yield process
    process.remove()
