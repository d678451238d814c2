"""Containers without namespaces and mounts: the level plain."""
