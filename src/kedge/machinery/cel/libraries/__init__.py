"""Kubernetes' libraries of functions, one file each."""
