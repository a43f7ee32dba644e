"""The product's policies and a model of vLLM workers on a virtual clock. Pure."""
