"""Container runtimes: one protocol, several implementations."""
