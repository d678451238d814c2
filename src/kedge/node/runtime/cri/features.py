"""The features of a container runtime, from what it says about itself. Pure."""

import re
from typing import Final

from kedge.node.runtime.cri import crio_configuration
from kedge.node.runtime.cri import messages as m
from kedge.node.runtime.runtime import RuntimeFeatures

_STOP_SIGNALS: Final = (1, 33)
"""The first CRI-O that knows stop signals. No answer of CRI tells."""


def of_runtime(version: m.CriVersion, status: m.CriRuntimeStatus) -> RuntimeFeatures:
    """Return the features of a runtime with its default handler."""
    features = status.features or m.CriFeatures()
    named = {each.name: each.features for each in status.runtime_handlers}
    handler = named.get("") or m.CriHandlerFeatures()
    return RuntimeFeatures(
        strict_groups=features.supplemental_groups_policy,
        recursive_read_only=handler.recursive_read_only_mounts,
        user_namespaces=handler.user_namespaces,
        stop_signals=version.runtime_name == crio_configuration.NAME
        and _minor(version.runtime_version) >= _STOP_SIGNALS,
    )


def _minor(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else ()
