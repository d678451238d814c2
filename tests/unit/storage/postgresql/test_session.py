import ssl

import pytest

from kedge.settings.postgresql import postgresql_address
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.postgresql.failures import PostgresFailureKind
from kedge.storage.postgresql.session import PostgresServers


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "kind", "behind"),
    [
        ("TLSV1_ALERT_UNKNOWN_CA", "REFUSED_CERTIFICATE", "REFUSED_CERTIFICATE"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "REFUSED_CERTIFICATE", "REFUSED_CERTIFICATE"),
        # A server that was killed is asked again; one that has another protocol is not.
        ("APPLICATION_DATA_AFTER_CLOSE_NOTIFY", "OTHER", "WITHOUT_EFFECT"),
    ],
)
def test_errors_of_tls_that_say_nothing_of_certificates_pass_with_their_connection(
    reason: str, kind: str, behind: str
) -> None:
    address = postgresql_address("postgresql://k@localhost/d")
    servers = PostgresServers(PostgresConnection(address=address))
    lost = ConnectionResetError("the connection was closed")
    lost.__cause__ = tls_error(reason)
    assert servers.unconnected(tls_error(reason), "s").kind is PostgresFailureKind[kind]
    assert servers.unconnected(lost, "s").kind is PostgresFailureKind[behind]
