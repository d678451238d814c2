"""`kedge clock`."""
