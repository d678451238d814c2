"""Conformance checks for drivers of Dynamic Resource Allocation, with a server but no nodes."""
