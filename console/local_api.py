"""In-process access to the REST API for the console's own commands.

Requests pass every middleware, permission check and audit entry of a network request, as the user
"system". Authentication is an object of this process, which no header can supply. Requires Django
to be set up.
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

from console.accounts.credentials import LOCAL_PROOF, LOCAL_PROOF_KEY
from console.client import Client

# Always an allowed host; https prevents a redirect.
URL = "https://localhost"
_UNAVAILABLE = 503


def client() -> Client:
    with warnings.catch_warnings():
        # whitenoise warning about missing static files, irrelevant for the API
        warnings.filterwarnings("ignore", message="No directory at")
        handler = WSGIHandler()

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        environ[LOCAL_PROOF_KEY] = LOCAL_PROOF
        answer = handler.get_response(WSGIRequest(environ))
        start(f"{answer.status_code} {answer.reason_phrase}", list(answer.items()))
        return _Body(answer)

    return Client(URL, transport=httpx.WSGITransport(app=app), live=False)


class _Body:
    """Response body whose end does not close the database connection: the caller may be in a
    transaction.
    """

    def __init__(self, answer: HttpResponseBase) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with warnings.catch_warnings():
            # Downloads are asynchronous; here they are collected in memory.
            warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume")
            return iter(self._answer)

    def close(self) -> None:
        request_finished.disconnect(close_old_connections)
        try:
            self._answer.close()
        finally:
            request_finished.connect(close_old_connections)


@contextmanager
def without_request_log() -> Iterator[None]:
    """Suppress request warnings and the traceback of a full disk or an unavailable database, whose
    cause the caller receives as an error; crashes are still logged.
    """
    log = logging.getLogger("django.request")

    def is_crash(record: logging.LogRecord) -> bool:
        return bool(record.exc_info) and getattr(record, "status_code", None) != _UNAVAILABLE

    log.addFilter(is_crash)
    try:
        yield
    finally:
        log.removeFilter(is_crash)
