"""OpenID Connect client: authorization redirect, callback and discovery.

django-allauth provides state, PKCE and OAuth 2. Added here: the metadata's issuer must match the
configuration, the ID token's signature and nonce are verified, and userinfo must have the same
subject. Raises `ProviderUnavailable` if the provider is unreachable and `Rejected` for an invalid
response.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.utils import generate_code_challenge
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.urls import reverse

from console.core.outbound import ForbiddenAddressError, pool_classes
from console.signon.core import id_token
from console.signon.core.configuration import Provider, is_safe_url
from console.signon.core.id_token import Rejected
from console.vault import store

log = logging.getLogger(__name__)


def client_secret(provider: Provider) -> str:
    """Return the client secret; empty for a public client (PKCE only)."""
    if provider.secret_file:
        try:
            return Path(provider.secret_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            log.warning(
                "Could not read the client secret of provider %s: %s", provider.id, error.strerror
            )
            return ""
    return provider.secret or store.get(_name(provider.id))


def secret_source(provider: Provider) -> str:
    """Return the secret's source for the settings page, never the secret."""
    if provider.secret_file:
        readable = bool(client_secret(provider))
        return f"file {provider.secret_file}" + ("" if readable else " (cannot be read)")
    if provider.secret:
        return "environment"
    return "vault" if store.get(_name(provider.id)) else "none (public client)"


def store_secret(provider_id: str, secret: str) -> None:
    store.put(_name(provider_id), secret)


def delete_secret(provider_id: str) -> None:
    store.drop(_name(provider_id))


def _name(provider_id: str) -> str:
    return f"signon/{provider_id}/client_secret"


_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# Malformed provider responses: unexpected JSON, no JSON, missing header, error status.
_BROKEN = (OAuth2Error, KeyError, TypeError, ValueError, AttributeError, ForbiddenAddressError)


class ProviderUnavailable(Exception):
    """The provider is unreachable or not an OpenID provider."""


class SocialAdapter(DefaultSocialAccountAdapter):
    """allauth adapter; providers come from the settings, not from its tables."""

    def get_requests_session(self) -> Any:
        """Return a session that checks each address when connecting.

        URLs in the metadata are untrusted. Loopback is allowed, since the operator sets the issuer.
        """
        session = super().get_requests_session()
        for adapter in session.adapters.values():
            adapter.poolmanager.pool_classes_by_scheme = pool_classes(own=True)
        return session

    def get_app(self, request: HttpRequest, provider: str, client_id: Any = None) -> SocialApp:  # noqa: ARG002
        known_provider = find_provider(provider)
        if known_provider is None:
            raise SocialApp.DoesNotExist
        return SocialApp(
            provider="openid_connect",
            provider_id=known_provider.id,
            name=known_provider.name,
            client_id=known_provider.client_id,
            secret=client_secret(known_provider),
            settings={"server_url": known_provider.issuer.rstrip("/")},
        )


class Adapter(OpenIDConnectOAuth2Adapter):
    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:  # noqa: ARG002
        return request.build_absolute_uri(reverse("signon:callback", args=[self.provider_id]))


@dataclass(frozen=True, slots=True)
class ProviderUser:
    """User returned by the provider; `state` is the data of our request."""

    provider: Provider
    subject: str
    claims: dict[str, Any]
    state: dict[str, Any]
    end_session: str


def find_provider(provider_id: str) -> Provider | None:
    return next(
        (provider for provider in settings.OIDC_PROVIDERS if provider.id == provider_id), None
    )


def begin_authorization(
    request: HttpRequest, provider: Provider, state: dict[str, Any], **more: str
) -> str:
    """Return the authorization URL; state, nonce and PKCE verifier are stored in the session."""
    adapter = Adapter(request, provider.id)
    metadata = load_metadata(adapter, provider)
    pair = generate_code_challenge()
    nonce = secrets.token_urlsafe(24)
    state_data = {**state, "nonce": nonce, "pkce_code_verifier": pair["code_verifier"]}
    social = adapter.get_provider()
    client = adapter.get_client(request, social.app)
    client.state = social.stash_redirect_state(request, "login", data=state_data)
    params = {
        **more,
        "nonce": nonce,
        "code_challenge": pair["code_challenge"].decode(),
        "code_challenge_method": pair["code_challenge_method"],
    }
    return str(client.get_redirect_url(metadata["authorization_endpoint"], provider.scopes, params))


def finish_authorization(request: HttpRequest, provider: Provider) -> ProviderUser:
    """Return the user of a callback; each attempt of this browser is accepted once."""
    adapter = Adapter(request, provider.id)
    social = adapter.get_provider()
    state = _unstash(request, social)
    if "error" in request.GET or "code" not in request.GET:
        raise Rejected("the provider rejected the request")
    metadata = load_metadata(adapter, provider)
    try:
        client = adapter.get_client(request, social.app)
        answer = client.get_access_token(
            request.GET["code"], pkce_code_verifier=state["pkce_code_verifier"]
        )
        claims = id_token.verify_token(
            answer["id_token"],
            _fetch_json(metadata["jwks_uri"]),
            issuer=provider.issuer,
            client_id=provider.client_id,
            nonce=state["nonce"],
        )
        more = _userinfo(metadata, answer["access_token"])
    except OSError as error:  # requests' exceptions derive from it
        raise ProviderUnavailable(type(error).__name__) from error
    except _BROKEN as error:
        raise Rejected(f"the provider rejected the code ({type(error).__name__})") from error
    if more and more.get("sub") != claims["sub"]:
        raise Rejected("userinfo has another subject")
    end = metadata.get("end_session_endpoint", "")
    return ProviderUser(
        provider, claims["sub"], {**more, **claims}, state, end if is_safe_url(end) else ""
    )


def _unstash(request: HttpRequest, social: Any) -> dict[str, Any]:
    try:
        stashed = social.unstash_redirect_state(request, request.GET.get("state", ""))
    except PermissionDenied:
        stashed = {}
    state: dict[str, Any] | None = stashed.get("data")
    if state is None:
        raise Rejected("the login was not started in this browser, or has expired (state)")
    return state


def load_metadata(adapter: Adapter, provider: Provider) -> dict[str, Any]:
    """Return the discovery document, checked against the configuration."""
    try:
        metadata: dict[str, Any] = adapter.openid_config
        missing = [name for name in _ENDPOINTS if not is_safe_url(metadata.get(name))]
        issuer = metadata.get("issuer")
    except OSError as error:
        raise ProviderUnavailable(type(error).__name__) from error
    except _BROKEN as error:
        raise ProviderUnavailable("its metadata cannot be read") from error
    if issuer != provider.issuer:
        raise Rejected(f"the metadata has another issuer: {str(issuer)[:200]}")
    if missing:
        raise ProviderUnavailable(f"its metadata lacks {', '.join(missing)}")
    return metadata


def _userinfo(facts: dict[str, Any], token: str) -> dict[str, Any]:
    url = facts.get("userinfo_endpoint")
    return _fetch_json(url, Authorization=f"Bearer {token}") if is_safe_url(url) else {}


def _fetch_json(url: Any, **headers: str) -> dict[str, Any]:
    with SocialAdapter().get_requests_session() as session:
        response = session.get(url, headers=headers, allow_redirects=False)
        response.raise_for_status()
        body = response.json()
    if not isinstance(body, dict):
        raise TypeError("not an object")
    return body
