"""`kedge top`."""
