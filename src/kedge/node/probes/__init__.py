"""Probes of containers: startup, liveness, readiness."""
