"""The modules and tables that every cluster of the warm parent shares."""

import gc
import importlib
from typing import Final

MODULES: Final = (
    "kedge.control_plane",
    "kedge.controllers.controllers",
    "kedge.scheduler.scheduler",
    "kedge.node.agent",
    "kedge.node.host.teardown",
    "kedge.cli.cluster.server",
    "kedge.cli.cluster.node",
    "kedge.cli.cluster.integrity",
    "kedge.cli.config.up",
    "kedge.client.kubeconfig",
    "kedge.gateway.listening",
    "kedge.apiserver.startup",
    "kedge.apiserver.crd.registrar",
    "kedge.apiserver.policies.type_check_status",
    "kedge.machinery.certificates",
    "kedge.machinery.yaml_text",
    "kedge.supervisor.files.removal",
    "cryptography.hazmat.primitives.asymmetric.rsa",
    "cryptography.hazmat.primitives.serialization",
    "cryptography.x509",
    "multiprocessing.synchronize",
)
"""Modules that a server and a node import before they are ready, or soon after. None of them starts
a thread: a fork copies only the thread that calls it."""


def load() -> None:
    """Import the modules, and compute the tables that do not depend on a cluster."""
    gc.disable()
    for name in MODULES:
        importlib.import_module(name)
    _compute_tables()


def share() -> None:
    """Set all objects aside for the forks to come."""
    # A search for garbage writes to each object that it visits, which would copy the pages.
    gc.collect()
    gc.freeze()


def _compute_tables() -> None:
    from kedge.api.builtin import schemas
    from kedge.api.core_v1 import event
    from kedge.api.core_v1.pod import pod

    schemas.prepare()
    for kind in (pod, event):
        _ = kind.RESOURCE.schema, kind.RESOURCE.extensions
