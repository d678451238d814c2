"""The process that starts a cluster's server and agents again when they die; nothing but the
standard library."""
