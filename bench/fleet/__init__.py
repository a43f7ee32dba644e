"""Model of a fleet of vLLM workers in virtual time, to evaluate routing."""
