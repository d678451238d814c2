"""Nodes whose pods are pretended: registered, scheduled to and measured, but nothing runs."""
