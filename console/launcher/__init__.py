"""Brings the whole product up on one machine, and takes it down again.

Promises that `up` can be run on a bare Debian-like machine and again on a running one, that each
step says what it does and how long it took, and that `down` leaves no process behind. Knows the
other rooms only as commands to start (`manage.py`, `python -m ...`): it imports no Django.
"""
