"""Usage of nodes and pods as autoscalers and `kubectl top` read it."""
