"""Ends a script that keeps the broker busy: without a broker no task of the console runs.

The embedded broker also holds the state that routers share, and routers may load scripts there. One
that never ends blocks every client; the server answers them BUSY after `busy-reply-threshold`
(5 s). https://valkey.io/commands/script-kill/
"""

from __future__ import annotations

import logging
import threading
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from console.core import counters

log = logging.getLogger(__name__)

CHECK_S: Final = 5.0
_REPLY_S: Final = 2.0


class BrokerGuard:
    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=_REPLY_S,
            socket_connect_timeout=_REPLY_S,
            retry=Retry(NoBackoff(), 0),
        )

    def check(self) -> str:
        """Return what was done: "", "killed" or, for a script that has written, "restarted"."""
        try:
            self._client.ping()
        except redis.ResponseError as error:
            return self._end_script() if str(error).startswith("BUSY") else ""
        except redis.RedisError:
            return ""  # away or slow, which others report
        return ""

    def _end_script(self) -> str:
        try:
            self._client.script_kill()
            done = "killed"
        except redis.ResponseError as error:
            if not str(error).startswith("UNKILLABLE"):
                return ""
            done = "restarted"
            # Its process keeper starts it again. Tasks are swept again within seconds.
            self._client.shutdown(nosave=True)
        except redis.RedisError:
            return ""
        counters.increment("broker_scripts_ended", how=done)
        log.error(
            "A script kept the broker busy for more than 5 s and was ended (%s). Whoever has the "
            "password of the broker or of the state store can load one: change both.",
            done,
        )
        return done


def start(url: str) -> None:
    """Check in a thread of this process for as long as it lives."""
    if not url.startswith(("redis://", "rediss://", "unix://")):
        return
    guard = BrokerGuard(url)
    stopped = threading.Event()

    def run() -> None:
        while not stopped.wait(CHECK_S):
            try:
                guard.check()
            except Exception:
                log.exception("The broker could not be checked; checked again in 5 s")

    threading.Thread(target=run, name="broker-guard", daemon=True).start()
