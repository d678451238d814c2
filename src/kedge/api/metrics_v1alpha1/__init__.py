"""Usage of nodes, pods and containers over rolling windows."""
