"""Usage of nodes, pods and containers, from counters to served windows; pure, with no network."""
