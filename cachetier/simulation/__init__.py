"""Cache of one vLLM worker without contents, for simulated workers and what-if analyses."""
