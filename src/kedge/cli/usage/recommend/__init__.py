"""`kedge recommend`."""
