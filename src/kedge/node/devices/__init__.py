"""Devices of the machine: device plugins, their allocation to containers, and its checkpoint."""
