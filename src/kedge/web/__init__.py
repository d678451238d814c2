"""HTTP as the servers of a cluster speak it: requests in, responses out, what these turn into."""
