"""The REST API in this process, without a listener: how the console's own commands use it.

Promises that what is asked this way goes through every middleware, permission, refusal and line of
the trail that a request over the network meets, as the console itself ("system"). Nobody else can
ask as it: the proof is an object of this process, which no header can be. Needs Django set up.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.core.signals import request_finished
from django.db import close_old_connections
from django.http import HttpResponseBase

from console.accounts.credentials import PROOF, PROOF_KEY
from console.client import Client

# An address that is always allowed; https, so that nothing sends it there.
URL = "https://localhost"


def client() -> Client:
    with warnings.catch_warnings():
        # whitenoise, where nobody has collected static files: no news to who asks the API
        warnings.filterwarnings("ignore", message="No directory at")
        handler = WSGIHandler()

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        environ[PROOF_KEY] = PROOF
        answer = handler.get_response(WSGIRequest(environ))
        start(f"{answer.status_code} {answer.reason_phrase}", list(answer.items()))
        return _Body(answer)

    return Client(URL, transport=httpx.WSGITransport(app=app), live=False)


class _Body:
    """An answer whose end is no end of this process's connection to the database: the caller may
    be in the middle of a transaction."""

    def __init__(self, answer: HttpResponseBase) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._answer)

    def close(self) -> None:
        request_finished.disconnect(close_old_connections)
        try:
            self._answer.close()
        finally:
            request_finished.connect(close_old_connections)


@contextmanager
def without_request_log() -> Iterator[None]:
    """A refusal is told to who asked; in the log of a server it would be news, here it is noise.
    What crashed is logged."""
    log = logging.getLogger("django.request")

    def crashed(record: logging.LogRecord) -> bool:
        return bool(record.exc_info)

    log.addFilter(crashed)
    try:
        yield
    finally:
        log.removeFilter(crashed)
