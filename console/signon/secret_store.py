"""A provider's client secret: from its file at each use (so that it can be changed while the
console runs), from the environment, or sealed in the vault."""

from __future__ import annotations

import logging
from pathlib import Path

from console.signon.core.configuration import Provider
from console.vault import store

log = logging.getLogger(__name__)


def client_secret(provider: Provider) -> str:
    """Empty for a public client, which PKCE alone protects."""
    if provider.secret_file:
        try:
            return Path(provider.secret_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            log.warning("signon: secret of %s: %s", provider.id, error.strerror)
            return ""
    return provider.secret or store.get(_name(provider.id))


def where(provider: Provider) -> str:
    """For the page of the settings: never the secret itself."""
    if provider.secret_file:
        readable = bool(client_secret(provider))
        return f"file {provider.secret_file}" + ("" if readable else " (cannot be read)")
    if provider.secret:
        return "environment"
    return "vault" if store.get(_name(provider.id)) else "none (public client)"


def keep(provider_id: str, secret: str) -> None:
    store.put(_name(provider_id), secret)


def forget(provider_id: str) -> None:
    store.drop(_name(provider_id))


def _name(provider_id: str) -> str:
    return f"signon/{provider_id}/client_secret"
