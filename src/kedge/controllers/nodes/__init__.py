"""Nodes in trouble, and what becomes of their pods."""
