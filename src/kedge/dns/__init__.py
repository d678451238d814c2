"""Cluster DNS: the zone of Services and pods, a server, and queries to the machine's resolvers."""
