"""The door of the API server to kedge.metrics: requests, the watch cache and kubelets."""
