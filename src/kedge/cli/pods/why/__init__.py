"""`kedge why`."""
