"""Authorization: RBAC, nodes, the default roles, and the rules against escalation."""
