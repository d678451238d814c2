"""HTTP as the servers of a cluster speak it: requests in, responses out, and what they turn into."""
