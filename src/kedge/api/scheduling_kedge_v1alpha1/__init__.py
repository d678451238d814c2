"""Decisions of the scheduler."""
