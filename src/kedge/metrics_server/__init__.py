"""The metrics API by itself, behind the API server of another cluster."""
