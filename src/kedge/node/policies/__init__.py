"""NetworkPolicies on a node: from policies, pods and namespaces to packet rules."""
