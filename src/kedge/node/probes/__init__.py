"""Probes: how the agent finds out whether containers are well."""
