"""Controllers of persistent volumes and claims."""
