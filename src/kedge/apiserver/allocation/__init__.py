"""Cluster IPs and node ports: which are free, which one a Service gets, and their IPAddresses."""
