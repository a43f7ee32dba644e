"""Benchmarks behind the README: Emberline and peers measured in the same run."""
