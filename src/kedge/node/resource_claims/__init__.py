"""The node's side of Dynamic Resource Allocation: drivers, and the claims that they prepare."""
