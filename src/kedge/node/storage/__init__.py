"""Persistent volumes on the node: drivers, mounts of claims, and their records."""
