"""`kedge get`."""
