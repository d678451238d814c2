"""The controller of PodDisruptionBudgets."""
