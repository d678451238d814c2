"""What the server knows of quotas while it admits."""
