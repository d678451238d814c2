"""Windows of nodes that do not report: computed here from the counters of their kubelets."""
