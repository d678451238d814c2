"""The rules a write must pass after it was read and before it is stored."""
