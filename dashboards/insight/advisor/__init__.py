"""Advisor: which change of an endpoint gains money or TTFT, and whether it did."""
