"""kedge: a Kubernetes-compatible cluster that is one `pip install` away."""

__version__ = "0.1.0"
KUBERNETES = "1.36.4"
"""The release of Kubernetes that this one follows."""
