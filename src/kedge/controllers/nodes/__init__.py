"""Controllers of unhealthy nodes and their pods."""
