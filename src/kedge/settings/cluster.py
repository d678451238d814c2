"""The settings that say which cluster of this machine a command is about."""

from typing import Final

from kedge.settings import values
from kedge.settings.setting import Setting

DEFAULT_NAME: Final = "default"

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
DNS: Final = Setting(
    "dns",
    values.DNS_MODE,
    "whether nodes answer DNS queries of pods; none to deploy another DNS server, such as CoreDNS",
)
