"""Checks of everything by which kvaware can quietly miss, each with what to do about it.

`gather` asks, `checks` judge, `examine` puts both together; nobody here changes anything. Must not
know Django: it works as well beside a router that no console has made (`python -m routing.doctor`).
"""
