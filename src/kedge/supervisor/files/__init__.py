"""Directories that containers write to: opened and removed without trusting their content."""
