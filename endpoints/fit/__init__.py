"""Estimate whether a model fits on a machine."""
