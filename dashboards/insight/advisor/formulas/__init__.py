"""Candidates, gains, cache sizes and checks of advice. Pure."""
