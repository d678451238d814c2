"""`kedge completion`: words that complete a command line."""
