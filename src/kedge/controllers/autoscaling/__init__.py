"""How many replicas: what usage asks for, and how fast it may be followed."""
