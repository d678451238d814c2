"""Signatures of bootstrap tokens, as kubeadm computes them."""

import pytest

from kedge.machinery.detached_jws import signature

HEAD = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9"


@pytest.mark.parametrize(
    ("content", "secret", "signed"),
    [
        (
            "Hello from the other side. I must have called a thousand times.",
            "my voice is my passcode",
            "VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8",
        ),
        ("", "my voice is my passcode", "7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk"),
    ],
)
def test_the_bytes_are_those_of_kubernetes(content: str, secret: str, signed: str) -> None:
    assert signature(content, "joshua", secret) == f"{HEAD}..{signed}"


def test_another_secret_or_content_has_another_signature() -> None:
    assert len({signature(a, "i", b) for a in "xy" for b in "pq"}) == 4
