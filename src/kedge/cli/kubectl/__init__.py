"""`kedge kubectl`: kubectl for those who have none."""
