"""What nodes and pods use: taken in from nodes, kept in memory, served in both metrics groups."""
