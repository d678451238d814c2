"""The same as metrics_v1beta1, under its lasting name."""
