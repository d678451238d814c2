"""kedge: a Kubernetes-compatible cluster that is one `pip install` away."""

__version__ = "0.1.0"
