"""How objects are described: one small file per kind, and one for all other kinds."""
