"""Formulas for endpoint costs and cache savings, and their inputs."""
