"""The console served by uvicorn, with real streaming.

pytest-django's `live_server` is WSGI, which buffers whole responses.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

from tests.support.ports import free_port
from tests.support.waiting import until


@contextmanager
def asgi_server() -> Iterator[str]:
    """Yield its URL. The database must be shared between threads (transaction=True)."""
    port = free_port()
    options = uvicorn.Config(
        ASGIStaticFilesHandler(get_asgi_application()),
        port=port,
        log_config=None,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(options)
    thread = threading.Thread(target=server.run, name="asgi-server", daemon=True)
    thread.start()
    until(lambda: server.started, what="the console")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
