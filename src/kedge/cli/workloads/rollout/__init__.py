"""`kedge rollout`: the revisions of a workload."""
