"""The controller of claims to devices."""
