"""Labels of nodes that Kubernetes has deprecated, and warnings about selectors that use them."""

from collections.abc import Iterator
from typing import Final

from kedge.api.core_v1.pod.affinity import NodeSelectorTerm
from kedge.api.model import LabelSelector
from kedge.machinery import names

DEPRECATED: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": (
        'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
    ),
    "failure-domain.beta.kubernetes.io/zone": (
        'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    ),
    "beta.kubernetes.io/instance-type": (
        'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
    ),
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": (
        "deprecated since v1.22; use Taints and Tolerations instead"
    ),
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}


def term_warnings(term: NodeSelectorTerm, path: str, *, values: bool = False) -> Iterator[str]:
    """Warn about a term of a node selector; also about its values, if validation lets them pass."""
    for i, requirement in enumerate(term.matchExpressions):
        at, key = f"{path}.matchExpressions[{i}]", requirement.key
        if key in DEPRECATED:
            yield f"{at}.key: {key} is {DEPRECATED[key]}"
        for j, value in enumerate(requirement.values if values else ()):
            for problem in names.label_value(value):
                yield f"{at}.values[{j}]: {value} is invalid, {problem}"


def selector_warnings(selector: LabelSelector, path: str) -> Iterator[str]:
    """Warn about a label selector of nodes."""
    for i, requirement in enumerate(selector.matchExpressions):
        key = requirement.key
        if key in DEPRECATED:
            yield f"{path}.matchExpressions[{i}].key: {key} is {DEPRECATED[key]}"
    for key in selector.matchLabels:
        if key in DEPRECATED:
            yield f"{path}.matchLabels.{key}: {DEPRECATED[key]}"
