"""Horizontal pod autoscaling: proposals from usage, and limits on how fast they are followed."""
