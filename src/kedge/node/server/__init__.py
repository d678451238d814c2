"""The node's own HTTPS server: what the API server asks of a node on behalf of its users."""
