"""The command line: what people see of a cluster, and what they tell it."""
