"""Commands about the measured usage of nodes and pods."""
