"""What objects take from the quotas of their namespace: pure, for admission and controllers."""
