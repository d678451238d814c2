"""`kedge exec`."""
