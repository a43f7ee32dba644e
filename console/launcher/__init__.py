"""Start and stop the whole product on one machine.

`up` works on a bare Debian-like machine and on a running product, and reports each step with its
duration. `down` leaves no process behind. Other parts are started as commands (`manage.py`,
`python -m ...`); Django is not imported.
"""
