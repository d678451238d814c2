"""The network of cluster IPs, which the settings of a server need before any kind is loaded."""

import ipaddress
from typing import Final

SERVICE_RANGE: Final = ipaddress.IPv4Network("10.96.0.0/16")
"""The network of cluster IPs that every cluster has."""
