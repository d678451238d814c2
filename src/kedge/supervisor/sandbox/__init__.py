"""Pod sandboxes and their namespaces."""
