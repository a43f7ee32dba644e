"""A Kubernetes to test against: a real control plane, a fake one, and who plays the kubelet."""
