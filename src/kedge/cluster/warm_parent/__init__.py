"""A small process with kedge's modules in memory, from which clusters for tests are forked."""
