"""The life of a pod on its node: plan, start, status, stop."""
