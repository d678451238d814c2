"""The node agent: makes the pods that are bound to one machine real."""
