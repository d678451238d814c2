"""Kinds of resource.k8s.io/v1: claims to devices, and the devices that drivers publish."""
