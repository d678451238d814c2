"""The environment variables of containers, and the downward API."""
