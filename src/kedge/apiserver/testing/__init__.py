"""What a server has only if it was started for tests: faults on purpose, and what clients did."""
