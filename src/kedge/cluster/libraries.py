"""Ready-made clients of other libraries for a kubeconfig. They are imported when they are used."""

import base64
import importlib
from pathlib import Path
from typing import Any

from kedge.client import login
from kedge.cluster.errors import ClusterError


def load(name: str, module: str = "") -> Any:
    """Import a client library; raises ClusterError if it is not installed."""
    try:
        return importlib.import_module(module or name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ClusterError(
            f'the package "{name}" is not installed: install it with "pip install {name}"'
        ) from error


def kubernetes(kubeconfig: Path) -> Any:
    """Return an ApiClient of the package kubernetes."""
    config = load("kubernetes", "kubernetes.config")
    return config.new_client_from_config(str(kubeconfig))


async def kubernetes_asyncio(kubeconfig: Path) -> Any:
    """Return an ApiClient of the package kubernetes_asyncio."""
    config = load("kubernetes_asyncio", "kubernetes_asyncio.config")
    return await config.new_client_from_config(str(kubeconfig))


def kr8s(kubeconfig: Path, namespace: str) -> Any:
    """Return an Api of the package kr8s."""
    return load("kr8s").api(kubeconfig=str(kubeconfig), namespace=namespace)


async def kr8s_async(kubeconfig: Path, namespace: str) -> Any:
    """Return an Api of kr8s.asyncio."""
    api = load("kr8s", "kr8s.asyncio").api
    return await api(kubeconfig=str(kubeconfig), namespace=namespace)


def kopf(kubeconfig: Path, namespace: str) -> Any:
    """Return a ConnectionInfo of the package kopf, the answer of a login handler."""
    found = login.read([kubeconfig])
    return load("kopf").ConnectionInfo(
        server=found.server,
        ca_data=_data(found.ca_pem),
        insecure=found.insecure or None,
        token=found.token or None,
        certificate_data=_data(found.certificate_pem),
        private_key_data=_data(found.key_pem),
        default_namespace=namespace,
    )


def _data(pem: bytes) -> str | None:
    return base64.b64encode(pem).decode() or None


def _lightkube_config(kubeconfig: Path, namespace: str) -> Any:
    loaded = load("lightkube").KubeConfig.from_file(str(kubeconfig)).get()
    return loaded, namespace


def lightkube(kubeconfig: Path, namespace: str) -> Any:
    """Return a Client of the package lightkube."""
    config, within = _lightkube_config(kubeconfig, namespace)
    return load("lightkube").Client(config=config, namespace=within)


def lightkube_async(kubeconfig: Path, namespace: str) -> Any:
    """Return an AsyncClient of the package lightkube."""
    config, within = _lightkube_config(kubeconfig, namespace)
    return load("lightkube").AsyncClient(config=config, namespace=within)
