"""Rendering of worker cache specs to arguments, environment, files, volumes and sizes.

Pure and importable without vLLM. Secrets are referenced by file, never included.
"""
