"""Kedge's own rules for pods and claims as a webhook of another cluster."""
