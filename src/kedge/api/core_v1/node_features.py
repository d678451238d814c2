"""The features that nodes declare in their status, by the names of Kubernetes' feature gates."""

from typing import Final

POD_LEVEL_RESIZE: Final = "InPlacePodLevelResourcesVerticalScaling"
"""Resizes the resources of a pod as a whole."""
INIT_CONTAINER_RESIZE: Final = "InPlacePodVerticalScalingInitContainers"
"""Resizes init containers that are no sidecars."""
DECLARED_FEATURES: Final = (
    "ExtendWebSocketsToKubelet",
    POD_LEVEL_RESIZE,
    INIT_CONTAINER_RESIZE,
    "RestartAllContainersOnContainerExits",
)
"""All features that kedge's nodes have, sorted as the status must have them."""
