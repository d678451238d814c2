"""The newest usage as JSON documents and as Prometheus text."""
