"""What a device plugin has to be able to do, tried without a cluster and without its hardware."""
