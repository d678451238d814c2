"""Which certificates a TLS context trusts."""

import ssl

from kedge.machinery.certificates import blocks


def trust(context: ssl.SSLContext, pem: bytes) -> None:
    """Trust the certificates of a text, as Go does: each one itself, independent of its signer.

    OpenSSL by default wants a chain that ends in a certificate that signed itself. So it refuses
    a server whose own certificate is the one that was given, as that of webhooks in
    controller-runtime's envtest, and clients of an authority that is below another.

    Raises ValueError or ssl.SSLError if there are none.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=b"\n".join(blocks(pem)).decode())


def trusting(pem: bytes) -> ssl.SSLContext:
    """Return the context of a client that trusts the certificates of a text, or, if it is empty,
    the authorities of the system."""
    if not pem:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(context, pem)
    return context
