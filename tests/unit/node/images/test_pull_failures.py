"""Each cause of a failed pull has its name and its next command."""

import socket
import ssl

import pytest

from kedge.client.transport import Unreachable
from kedge.client.tunnel import ProxyFailure
from kedge.node.images.pull_failures import PullUnauthorized, of_status, unreachable


def after(cause: Exception) -> Unreachable:
    error = Unreachable(f"cannot connect to r.example: {cause}")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "word", "advice"),
    [
        (ProxyFailure("the proxy http://p:1 says no"), "the proxy http://p:1", "HTTPS_PROXY"),
        (socket.gaierror(-2, "Name or service not known"), "(DNS)", "HTTPS_PROXY"),
        (ssl.SSLCertVerificationError(1, "bad"), "(TLS)", "--registry-ca r.example=FILE"),
        (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "TLS handshake", "--insecure-registry r.example"),
        (TimeoutError(), "cannot connect", "check the network"),
        (ConnectionRefusedError(111, "refused"), "cannot connect", "that the registry runs"),
    ],
)
def test_of_connections(cause: Exception, word: str, advice: str) -> None:
    if isinstance(cause, ssl.SSLCertVerificationError):
        cause.verify_message = "self-signed certificate"
    failure = unreachable("r.example", after(cause))
    assert word in str(failure)
    assert advice in failure.advice


@pytest.mark.parametrize(
    ("status", "word", "advice"),
    [
        (401, "denies access (401): go away", "kedge image pull"),
        (403, "denies access (403): go away", "imagePullSecrets"),
        (404, "not found in the registry (404)", "check the name"),
        (407, "the proxy asks for credentials", "USER:PASSWORD"),
        (429, "rate limit is reached (429): go away", "--registry-mirror"),
        (500, "answers 500 for its token: go away", ""),
    ],
)
def test_of_answers(status: int, word: str, advice: str) -> None:
    failure = of_status(status, "its token", "go away")
    assert word in str(failure)
    assert advice in failure.advice
    assert isinstance(failure, PullUnauthorized) == (status in (401, 403))
