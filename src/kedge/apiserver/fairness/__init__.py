"""API priority and fairness: which requests wait when there are too many."""
