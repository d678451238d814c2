"""Workloads that run for ever: Deployments, StatefulSets, DaemonSets, and what they are made of."""
