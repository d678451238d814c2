"""`kedge faults`."""
