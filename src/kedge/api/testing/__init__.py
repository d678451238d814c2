"""The values that the endpoints of a cluster for tests take and return."""
