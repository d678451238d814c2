"""The ground floor: pure values and algorithms that know no Kubernetes kind."""
