"""`kedge ui`."""
