"""Key management services: encryption at rest with a key that only a plugin has (KMS v2)."""
