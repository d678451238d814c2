"""The volumes of pods: one file for each kind, and common parts."""
