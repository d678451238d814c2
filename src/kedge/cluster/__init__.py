"""A cluster in a test: Cluster and AsyncCluster, forked from a warm parent; a plugin for pytest.

Nothing is imported here: pytest loads the plugin in every run.
"""
