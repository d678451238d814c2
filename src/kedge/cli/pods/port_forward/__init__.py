"""`kedge port-forward`: ports of a pod on this machine."""
