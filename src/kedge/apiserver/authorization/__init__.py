"""Who may do what: RBAC, nodes, the roles that every cluster has, and how rights are handed on."""
