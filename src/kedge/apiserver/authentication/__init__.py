"""Authentication: maps the credentials of a request to a user, and issues credentials."""
