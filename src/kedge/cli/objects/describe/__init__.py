"""`kedge describe`."""
