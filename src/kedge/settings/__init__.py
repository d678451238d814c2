"""Settings: how one is declared, and the types of their values."""
