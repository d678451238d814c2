"""The network of one node's pods: a bridge, an address for each pod, ways in and out."""
