"""Who is behind a Service."""
