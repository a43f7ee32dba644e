"""Kubernetes for tests: a real control plane, a fake one, and a simulated kubelet."""
