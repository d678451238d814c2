"""The metrics API as a server of its own, behind the API server of another cluster."""
