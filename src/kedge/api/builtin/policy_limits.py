"""Enforcement of NetworkPolicies: the annotation of a Node, and the limits of one policy.

Kubernetes has no such limits beyond the size of an object. A node has, because all tenants share
its time. A part that exceeds them is left out, so that it allows nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kedge.api.builtin.content import listed, reach

ENFORCEMENT_ANNOTATION: Final = "kedge.dev/network-policy"
"""The annotation of a Node that says how it enforces policies: nftables, or none and why."""
ENFORCED: Final = "nftables"

MOST_ENTRIES: Final = 20_000
"""Ports, peers and exceptions of address blocks of one policy."""
MOST_RULES: Final = 500
"""Rules with different ports, of one policy and direction: a packet may have to be compared with
each of them."""
MOST_SELECTORS: Final = 2_000
"""Different selectors among the peers of one rule: each pod is compared with each of them."""

_DIRECTIONS: Final = (("spec.ingress", "from"), ("spec.egress", "to"))


def excesses(policy: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each limit that a policy may exceed."""
    entries = 0
    for direction, peers in _DIRECTIONS:
        rules = listed(policy, direction)
        if len(rules) > MOST_RULES:
            yield (
                f"{direction}: of rules with different ports, nodes enforce {MOST_RULES:,}; what"
                " the others allow stays denied"
            )
        for i, rule in enumerate(rules):
            found = listed(rule, peers)
            if len(found) > MOST_SELECTORS:
                yield (
                    f"{direction}[{i}].{peers}: of different selectors, nodes enforce"
                    f" {MOST_SELECTORS:,}; the pods of the others stay denied"
                )
            exceptions = sum(len(reach(each, "ipBlock.except") or ()) for each in found)
            entries += len(found) + exceptions + len(listed(rule, "ports"))
    if entries > MOST_ENTRIES:
        yield (
            f"spec: of ports, peers and exceptions, nodes enforce the first {MOST_ENTRIES:,}; what"
            " the others allow stays denied"
        )
