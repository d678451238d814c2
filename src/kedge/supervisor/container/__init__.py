"""Containers and the commands that are executed in them."""
