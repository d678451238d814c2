"""Make configurations from settings: flags, then environment variables, then kedge.toml."""
