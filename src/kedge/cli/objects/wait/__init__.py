"""`kedge wait`: wait for a state of objects."""
