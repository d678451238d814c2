"""Commands about workloads: scale, rollout."""
