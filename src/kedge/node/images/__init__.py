"""Container images: names, registries, archives, and the store on this machine."""
