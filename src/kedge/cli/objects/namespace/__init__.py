"""`kedge namespace`."""
