"""Containers of containerd, CRI-O and other runtimes with the Container Runtime Interface."""
