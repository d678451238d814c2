"""Default ranges for Services that flags can change."""

from typing import Final

NODE_PORTS: Final = range(30000, 32768)
LOAD_BALANCER_NETWORK: Final = "10.97.0.0/24"
