"""The process that restarts a cluster's server and agents when they die; imports only the
standard library."""
