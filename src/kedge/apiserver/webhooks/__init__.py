"""Other people's programs that are asked before a write happens."""
