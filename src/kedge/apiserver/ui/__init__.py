"""The dashboard at `/ui`: its files, and how browsers sign in."""
