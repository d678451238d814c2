"""Everything in this directory is about pods that run: its cluster has a node."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, own_clusters: Any) -> Iterator[Any]:
    home = tmp_path_factory.mktemp("node")
    if given := os.environ.get("KEDGE_E2E_KUBECONFIG"):
        yield own_clusters.given(home, Path(given))
        return
    own = own_clusters.own(home)
    yield own.up("--nodes=1")
    own.down()
