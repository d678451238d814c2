"""What runs containers: one protocol, several implementations."""
