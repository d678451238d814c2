"""`kedge backup` and `kedge restore`: the objects and the identity of a cluster in one file."""
