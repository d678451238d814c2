"""Conformance checks for device plugins, without a cluster and without the hardware."""
