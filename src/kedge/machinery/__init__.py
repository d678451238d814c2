"""Pure values and algorithms that do not depend on any Kubernetes kind."""
