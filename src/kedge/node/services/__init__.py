"""The Service datapath of a node: from Services and EndpointSlices to packet rules."""
