"""nf_tables by netlink: the packet rules of the kernel, without the program `nft`."""
