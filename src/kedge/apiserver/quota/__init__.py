"""The quota usage that the server tracks for admission."""
