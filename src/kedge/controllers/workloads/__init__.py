"""Controllers of workloads: Deployments, ReplicaSets, StatefulSets and DaemonSets."""
