"""`kedge requests`."""
