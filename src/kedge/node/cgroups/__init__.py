"""Control groups of pods."""
