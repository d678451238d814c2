"""The parts of a server that was started for tests: faults on purpose, and records of requests."""
