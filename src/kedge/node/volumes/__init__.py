"""The volumes of pods: one file for each kind, and what they share."""
