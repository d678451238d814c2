"""The settings that say which cluster of this machine a command is about."""

from typing import Final

from kedge.settings import values
from kedge.settings.setting import Setting

DEFAULT_NAME: Final = "default"
CONTEXT_PREFIX: Final = "kedge-"
"""The begin of the contexts that `kedge up` makes; the name of the cluster follows."""

CONFIG: Final = Setting(
    "config",
    values.FILE,
    "file of settings, empty for none",
    default="$XDG_CONFIG_HOME/kedge/kedge.toml, for root /etc/kedge/kedge.toml",
)
NAME: Final = Setting(
    "name",
    values.CLUSTER_NAME,
    "name of the cluster; its context is kedge-NAME",
    default=DEFAULT_NAME,
)
STATE: Final = Setting(
    "state",
    values.DIRECTORY,
    "directory of the cluster",
    default="NAME under $XDG_STATE_HOME/kedge, for root under /var/lib/kedge",
)
LOAD_BALANCERS: Final = Setting(
    "load-balancer-cidr",
    values.NETWORK,
    "the addresses for Services of type LoadBalancer; nodes lead packets to them to the pods",
)
DNS: Final = Setting(
    "dns",
    values.DNS_MODE,
    "whether nodes answer DNS queries of pods; none to deploy another DNS server, such as CoreDNS",
)
TESTING: Final = Setting(
    "testing",
    values.SWITCH,
    "let administrators inject faults, move the time and see what clients did, under /testing: for"
    " clusters of tests only; nodes follow the time of the server",
    default="do not",
)
COURSE_PATH: Final = "/testing/clock/course"
"""How the clock of a server for tests has moved so far. Nodes may read this page of the tests."""
DEVICE_ACCESS: Final = Setting(
    "device-access",
    values.DEVICE_ACCESS,
    "variables of containers with devices that name objects which the pod needs permission to use,"
    " such as 'FPGA_BITSTREAM_ID_*=bitstreams.fpga.intel.com'; may be repeated, the variable holds"
    " one rule",
)
