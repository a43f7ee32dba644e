"""A fleet of vLLM workers as a model in virtual time, and what routing does to it."""
