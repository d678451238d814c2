"""`kedge logs`."""
