"""Accounts, their tokens and certificates, and roles."""
