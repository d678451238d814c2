"""The node's HTTPS server, which the API server uses for logs, exec, attach and port-forward."""
