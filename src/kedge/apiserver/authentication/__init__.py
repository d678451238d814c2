"""Who asks: from the credentials of a request to a user, and how credentials are made."""
