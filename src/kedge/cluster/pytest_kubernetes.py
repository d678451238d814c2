"""A provider for the package pytest-kubernetes: its fixture `k8s` is then a cluster of kedge.

In `conftest.py`: `from kedge.cluster.pytest_kubernetes import k8s_manager`.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_kubernetes.options import ClusterOptions
from pytest_kubernetes.providers.base import AClusterManager

from kedge.cluster.cluster import Cluster
from kedge.cluster.errors import ClusterError, WaitTimeout
from kedge.machinery import yaml_text


class KedgeManager(AClusterManager):  # type: ignore[misc]
    """A cluster for tests. The settings of `create` are those of `kedge.Cluster`:
    `k8s.create(nodes=2)`. A file of `provider_config` holds such settings, in YAML."""

    _cluster: Cluster | None = None

    @classmethod
    def get_binary_name(cls) -> str:
        return "kedge"

    @property
    def cluster(self) -> Cluster:
        """The cluster, with the methods that pytest-kubernetes does not have."""
        if self._cluster is None:
            raise ClusterError("the cluster does not run: call create() first")
        return self._cluster

    def ready(self, timeout: float = 20) -> bool:
        """Return whether the cluster runs, and pods can be created in the namespace default."""
        if self._cluster is None:
            return False
        try:
            self._cluster.wait("sa/default", "exists", timeout=timeout)
        except WaitTimeout:
            return False
        return True

    def load_image(self, image: str) -> None:
        """Load an image: an archive or directory, or the name of an image of Docker."""
        command = [sys.executable, "-m", "kedge", "image", "load", "--state", self.cluster.state]
        if Path(image).exists():
            _run([*command, image])
        else:
            _run([*command, "-"], _run(["docker", "save", image]))

    def _ensure_executable(self) -> None:
        """Do nothing: the cluster is forked from this Python."""

    def _on_create(self, cluster_options: ClusterOptions, **settings: Any) -> None:
        file = cluster_options.provider_config
        chosen = {**_settings(Path(file)), **settings} if file else settings
        self._cluster = Cluster(kubeconfig=cluster_options.kubeconfig_path, **chosen).start()

    def _on_delete(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()


def _settings(file: Path) -> dict[str, Any]:
    found = yaml_text.read(file.read_text()) or {}
    if not isinstance(found, dict):
        raise ClusterError(f"{file} is not a mapping of settings to values")
    # The name is that of pytest-kubernetes.
    return {key: value for key, value in found.items() if key != "name"}


def _run(command: list[Any], content: bytes = b"") -> bytes:
    try:
        done = subprocess.run(command, input=content, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]} is not installed: {error}") from error
    if done.returncode:
        raise ClusterError(done.stderr.decode(errors="replace").strip())
    return done.stdout


@pytest.fixture(scope="session")
def k8s_manager() -> Callable[..., type[KedgeManager]]:
    """Let every provider that a test names be kedge."""
    return lambda provider=None: KedgeManager
