"""`kedge server` as `kedge up` calls it."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kedge.apiserver.config import ADMISSION_PLUGINS, KubeletTrust, ServerConfig
from kedge.cli.cluster.server import child_arguments
from kedge.cli.config.server import server_config
from kedge.cli.config.settings import Settings
from kedge.cli.main import parser
from kedge.controllers import names

HOSTS = st.sampled_from(["box", "fd00::7", "192.0.2.7", "a.example.com"])

CONFIGS = st.builds(
    ServerConfig,
    state=st.sampled_from([Path("/s/t"), Path("/with space/and=sign"), Path("/-dash")]),
    name=st.from_regex("[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True),
    host=st.sampled_from(["127.0.0.1", "::1", "0.0.0.0"]),
    port=st.integers(0, 65535),
    store=st.sampled_from(["sqlite", "memory"]),
    admission=st.sets(st.sampled_from(ADMISSION_PLUGINS)).map(
        lambda chosen: tuple(name for name in ADMISSION_PLUGINS if name in chosen)
    ),
    upstream_only=st.booleans(),
    hosts=st.lists(HOSTS).map(tuple),
    token_auth_file=st.sampled_from([None, Path("/s/tokens.csv")]),
    audit_log=st.sampled_from([None, Path("/with space/audit=.log")]),
    metrics_window=st.sampled_from(["10s", "1m"]),
    local_nodes=st.sampled_from([{}, {"node-1": "127.0.0.1", "node-2": "::1"}]),
    scrape_kubelets=st.booleans(),
    scrape_seconds=st.integers(10, 3600),
    kubelets=st.builds(
        KubeletTrust,
        authority=st.sampled_from([None, Path("/s/kubelets=.crt")]),
        anybody=st.booleans(),
    ),
    max_requests_inflight=st.integers(0, 1000),
    max_mutating_requests_inflight=st.integers(0, 1000),
    controllers=st.sets(st.sampled_from(names.ALL)).map(
        lambda chosen: tuple(name for name in names.ALL if name in chosen)
    ),
    node_grace=st.integers(1, 600).map(float),
    node_ports=st.integers(1, 65535).map(lambda first: range(first, 65536)),
    load_balancer_network=st.sampled_from(["10.97.0.0/24", "192.0.2.7/32"]),
)
PARSER = parser()
"""Made once: that takes longer than to parse a command line."""


@given(CONFIGS)
def test_a_configuration_survives_the_command_line_whatever_the_environment_says(
    wanted: ServerConfig,
) -> None:
    environment = {
        "KEDGE_NAME": "other",
        "KEDGE_PORT": "1",
        "KEDGE_UPSTREAM_ONLY": "true",
        "KEDGE_ADMISSION_CONTROL": "NamespaceLifecycle",
        "KEDGE_DISABLE_ADMISSION_PLUGINS": "NamespaceLifecycle",
        "KEDGE_CERT_HOSTS": "elsewhere",
        "KEDGE_TOKEN_AUTH_FILE": "/elsewhere",
        "KEDGE_AUDIT_LOG_PATH": "/elsewhere",
        "KEDGE_METRICS_WINDOW": "1h",
        "KEDGE_METRICS_RESOLUTION": "1h",
        "KEDGE_SCRAPE_KUBELETS": "true",
        "KEDGE_KUBELET_INSECURE_TLS": "true",
        "KEDGE_KUBELET_CERTIFICATE_AUTHORITY": "/elsewhere",
        "KEDGE_MAX_REQUESTS_INFLIGHT": "1",
        "KEDGE_MAX_MUTATING_REQUESTS_INFLIGHT": "1",
        "KEDGE_CONTROLLERS": "*",
        "KEDGE_NODE_MONITOR_GRACE_PERIOD": "1s",
        "KEDGE_SERVICE_NODE_PORT_RANGE": "1-2",
        "KEDGE_LOAD_BALANCER_CIDR": "10.0.0.0/8",
    }
    flags = PARSER.parse_args(["server", *child_arguments(wanted)])
    assert server_config(Settings(flags, environment)) == wanted
