"""How many pods may be missing at once."""
