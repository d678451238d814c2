"""Commands about the objects of a cluster, in the manner of kubectl."""
