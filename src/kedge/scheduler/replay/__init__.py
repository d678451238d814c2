"""Replays recorded usage through the scheduler."""
