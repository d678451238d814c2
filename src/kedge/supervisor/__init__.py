"""The supervisor: a small process that forks containers and outlives the node agent."""
