"""Allocation of devices to claims, as in the structured allocator of Kubernetes."""
