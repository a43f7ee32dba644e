"""How L2 of an endpoint stands: our own tier, or somebody's Redis.

Promises one short look and never an exception: a cache that is away is a fact, not a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cachetier import actions as tiers
from cachetier.choices import DEFAULT_TIER
from cachetier.selectors import attachment
from endpoints.choices import Reason
from endpoints.lifecycle import PartSeen
from endpoints.spec import EndpointSpec, L2Spec
from endpoints.worker_spec import L2Access

LOOK_S = 0.7


@dataclass(frozen=True, slots=True)
class L2Look:
    """`access` is None while no address is known; `part` is None when L2 is off."""

    access: L2Access | None = None
    part: PartSeen | None = None


def look(spec: EndpointSpec) -> L2Look:
    l2 = spec.cache.l2
    if not l2.enabled:
        return L2Look()
    return _tier(l2.tier) if spec.needs_cache_tier else _redis(l2)


def _tier(name: str) -> L2Look:
    if name == DEFAULT_TIER:
        tiers.ensure_default_tier()
    found = attachment(name)
    access = L2Access(found.url, found.password_file) if found.url else None
    part = PartSeen("cache tier", found.ready, found.reason, found.message, bool(found.url))
    return L2Look(access, part)


def _redis(l2: L2Spec) -> L2Look:
    access = L2Access(l2.url, l2.password_file)
    problem = _ping(access)
    part = PartSeen("redis", not problem, Reason.L2_UNAVAILABLE if problem else "", problem)
    return L2Look(access, part)


def _ping(access: L2Access) -> str:
    """Why it does not answer, "" if it does."""
    try:
        password = Path(access.password_file).read_text().strip() if access.password_file else None
        with redis.Redis.from_url(
            access.url,
            password=password,
            socket_connect_timeout=LOOK_S,
            socket_timeout=LOOK_S,
            retry=Retry(NoBackoff(), 0),
        ) as client:
            client.ping()
    except redis.AuthenticationError:
        return f"{access.url} refuses the password."
    except redis.RedisError as error:
        return f"{access.url} does not answer ({type(error).__name__})."
    except UnicodeDecodeError:
        return f"{access.password_file} holds no text."
    except ValueError as error:  # such as a host name that no resolver takes
        return f"{access.url} cannot be asked ({type(error).__name__})."
    except OSError as error:
        return f"{access.password_file} cannot be read ({error.strerror})."
    return ""
