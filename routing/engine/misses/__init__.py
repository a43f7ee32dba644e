"""Causes of computed prompt tokens. Keyed hashes and lengths only, no prompt text."""
