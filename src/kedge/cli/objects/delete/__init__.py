"""`kedge delete`."""
