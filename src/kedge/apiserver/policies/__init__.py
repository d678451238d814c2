"""Admission policies: which apply to a request, with which parameters, and what they decide."""
