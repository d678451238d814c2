"""A cluster with accounts and tokens for every test that asks for one."""

import pytest

from kedge.apiserver.authentication.keys import SigningKey
from kedge.testing.identities import ClusterIdentities
from kedge.testing.local_server import LocalServer


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    """To make a key takes long, so all tests share one."""
    made = SigningKey(tmp_path_factory.mktemp("pki"))
    made.prepare()
    return made


@pytest.fixture
def identities(server: LocalServer, key: SigningKey) -> ClusterIdentities:
    return ClusterIdentities(server, key)
