"""The machine that a node runs on: its registration, certificates, record and teardown."""
