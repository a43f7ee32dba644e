"""Listener of change notices in the Celery worker: nudges the reconciler of what changed.

Apps register a handler for each kind of owner. Everything is observed anew when listening begins,
or when a notice could not be handled; a notice that is lost is made up for by the periodic passes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from celery import current_app
from django.conf import settings
from django.db import connections

from console.claims import Observed, mark_all_due
from console.clusters.watches import ClusterWatches
from console.core.counters import increment
from console.processkit.changes import PROGRAM, ChangeReceiver, socket_path
from console.provisioners.local import programs

log = logging.getLogger(__name__)

RETRY_S = 1.0
_OBSERVE_TASK = "console.system.tasks.look"
Handler = Callable[[str], None]
_handlers: dict[str, Handler] = {}
_models: dict[str, type[Observed]] = {}


def register_handler(kind: str, handler: Handler, model: type[Observed]) -> None:
    """`handler(name)` reconciles the owner `kind/name` soon; unknown names are ignored. `model` has
    the status rows.
    """
    _handlers[kind] = handler
    _models[kind] = model


def observe_anew() -> None:
    """Make every row due now: changes without a listener are unknown."""
    for model in _models.values():
        mark_all_due(model)


def announce(subjects: Iterable[str]) -> None:
    """Call the handler of each owner once. The console's own programs, which have none, are
    compared.
    """
    var = settings.EMBERLINE.var
    owners = set()
    for subject in subjects:
        program = subject.startswith(PROGRAM)
        owner = programs.owner_of(var, subject.removeprefix(PROGRAM)) if program else subject
        if program and not owner:
            current_app.tasks[_OBSERVE_TASK].nudge()
        owners.add(owner)
    for owner in sorted(owners):
        kind, _, name = owner.partition("/")
        if name and kind in _handlers:
            increment("change_notices", kind=kind)
            _handlers[kind](name)


class ChangeListener(threading.Thread):
    def __init__(self, path: Path) -> None:
        super().__init__(name="change-listener", daemon=True)
        self._receiver = ChangeReceiver(path)
        self._stopped = threading.Event()

    def run(self) -> None:
        self._observe_anew()
        while not self._stopped.is_set():
            try:
                announce(self._receiver.receive())
            except Exception:
                log.exception("Change notices discarded; everything is observed anew")
                self._stopped.wait(RETRY_S)
                self._observe_anew()
            finally:
                connections.close_all()
        self._receiver.close()

    def _observe_anew(self) -> None:
        try:
            observe_anew()
        except Exception:
            log.exception("Rows are observed in their periodic passes only")

    def stop(self) -> None:
        self._stopped.set()
        self._receiver.wake()
        self.join()


def start_watches(**_: Any) -> ClusterWatches:
    """Watch the clusters in use in this process."""
    watches = ClusterWatches(announce)
    watches.start()
    return watches


def start_listener(**_: Any) -> ChangeListener | None:
    """Listen in this process; return None where nothing is announced."""
    path = socket_path()
    if path is None:
        return None
    try:
        listener = ChangeListener(path)
    except OSError as error:
        log.warning("No change notices, periodic passes only: %s: %s", path, error)
        return None
    listener.start()
    return listener
