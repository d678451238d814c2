"""`kedge simulate`."""
