"""`kedge explain`: where limits and variables come from."""
