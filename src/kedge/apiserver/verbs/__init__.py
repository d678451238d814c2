"""What can be done to any object: one file for each sort of verb."""
