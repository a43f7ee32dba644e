"""Routing doctor: read-only checks of causes of KV-aware routing misses, each with a fix.

`inspection` gathers facts, `checks` evaluate them, `examination` combines both. Also runs
standalone against any router (`python -m routing.doctor`).
"""
