"""What pods may use, as the kernel's control groups hold it."""
