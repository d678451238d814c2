"""`kedge cp`: files into and out of containers."""
