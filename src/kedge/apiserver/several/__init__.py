"""Several servers on one store: who they are, and what they agree on."""
