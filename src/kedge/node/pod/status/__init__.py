"""The status of a pod, and how it reaches the API server."""
