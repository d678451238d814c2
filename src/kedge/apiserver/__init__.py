"""The API server: requests in, stored objects and watch streams out."""
