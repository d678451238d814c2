"""A real etcd and a real PostgreSQL for the suites of stores."""

from collections.abc import Iterator

import pytest

from kedge.testing.etcd_process import EtcdMissing, EtcdProcess
from kedge.testing.postgresql_process import PostgresMissing, PostgresProcess


@pytest.fixture
def etcd() -> Iterator[EtcdProcess]:
    """An empty etcd, which is removed after the test."""
    try:
        process = EtcdProcess.throwaway()
    except EtcdMissing as missing:
        pytest.skip(str(missing))
    yield process
    process.remove()


@pytest.fixture(scope="session")
def shared_postgresql() -> Iterator[PostgresProcess]:
    """A PostgreSQL of which each test uses another schema."""
    try:
        process = PostgresProcess.throwaway()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    yield process
    process.remove()


@pytest.fixture
def postgresql(shared_postgresql: PostgresProcess) -> Iterator[PostgresProcess]:
    """The same for a test that kills it."""
    shared_postgresql.new_address()
    yield shared_postgresql
    shared_postgresql.kill()
    shared_postgresql.start()
