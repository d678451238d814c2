"""Aggregation: API groups that servers behind Services answer for."""
