"""Thin layers over the Linux kernel: system calls, control groups, processes, devices."""
