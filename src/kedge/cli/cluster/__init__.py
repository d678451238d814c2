"""Commands about the clusters of this machine, and the processes that they consist of."""
