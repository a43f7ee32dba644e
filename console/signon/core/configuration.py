"""Login policy and OpenID Connect providers from the environment, read once at the start.

A provider that cannot work, or would send secrets unencrypted, stops the start with the field, its
value and the fix. Errors and reprs contain no secrets.

A single provider is set by EMBERLINE_OIDC_ISSUER, _CLIENT_ID, _CLIENT_SECRET(_FILE), _NAME and
_ADMIN_GROUPS, _OPERATOR_GROUPS, _VIEWER_GROUPS; several, with teams, as YAML in
EMBERLINE_OIDC_FILE. docs/access.md describes the fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from console.core import environment, yaml_reader
from console.core.environment import SettingError
from console.core.yaml_reader import YamlError

ROLES = ("viewer", "operator", "admin")
REFUSE = "refuse"
DEFAULTS = (REFUSE, "member", "viewer")
SECOND_FACTOR = ("here", "provider")
SCOPES = ("openid", "profile", "email")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_SETTING = "EMBERLINE_OIDC"
Groups = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Provider:
    id: str
    name: str
    issuer: str
    client_id: str
    secret: str = field(default="", repr=False)
    secret_file: str = ""
    scopes: tuple[str, ...] = SCOPES
    groups_claim: str = "groups"
    username_claim: str = "preferred_username"
    new_people: bool = True
    default_role: str = REFUSE
    second_factor: str = "here"
    roles: Mapping[str, Groups] = field(default_factory=dict)
    teams: Mapping[str, Mapping[str, Groups]] = field(default_factory=dict)


def load_providers(env: Mapping[str, str]) -> tuple[Provider, ...]:
    text = environment.text(env, _SETTING)
    issuer = environment.text(env, "EMBERLINE_OIDC_ISSUER")
    if text and issuer:
        remedy = "EMBERLINE_OIDC is also set; keep only one of the two"
        raise SettingError("EMBERLINE_OIDC_ISSUER", issuer, remedy)
    if issuer:
        return (_single(env, issuer),)
    return parse_providers(text) if text else ()


def parse_providers(text: str) -> tuple[Provider, ...]:
    try:
        document = yaml_reader.read_document(text)
    except YamlError as error:
        raise SettingError(_SETTING, f"line {error.line}", "invalid YAML") from None
    entries = document.get("providers") if isinstance(document, dict) else None
    if not isinstance(entries, list) or set(document) != {"providers"}:
        raise SettingError(_SETTING, "...", "add `providers:` with a list")
    providers = tuple(
        _provider(entry, f"providers[{index}]") for index, entry in enumerate(entries)
    )
    for provider in providers:
        if sum(other.id == provider.id for other in providers) > 1:
            raise SettingError(f"{_SETTING} id", provider.id, "use a unique id for each provider")
    return providers


def _single(env: Mapping[str, str], issuer: str) -> Provider:
    roles = {
        role: environment.split_list(env, f"EMBERLINE_OIDC_{role.upper()}_GROUPS") for role in ROLES
    }
    entry = {
        "id": "oidc",
        "name": environment.text(env, "EMBERLINE_OIDC_NAME", "single sign-on"),
        "issuer": issuer,
        "client_id": environment.text(env, "EMBERLINE_OIDC_CLIENT_ID"),
        "secret": environment.text(env, "EMBERLINE_OIDC_CLIENT_SECRET"),
        "groups_claim": environment.text(env, "EMBERLINE_OIDC_GROUPS_CLAIM", "groups"),
        "scopes": environment.split_list(env, "EMBERLINE_OIDC_SCOPES") or list(SCOPES),
        "roles": {role: groups for role, groups in roles.items() if groups},
    }
    return _provider(entry, "EMBERLINE_OIDC_*", secret_allowed=True)


class _Entry:
    """Fields of one provider, each read once; unread fields are an error."""

    def __init__(self, entry: Any, where: str) -> None:
        if not isinstance(entry, dict):
            raise SettingError(f"{_SETTING} {where}", "...", "use a mapping of fields to values")
        self.left = dict(entry)
        self.where = where

    def wrong(self, name: str, value: object, remedy: str) -> SettingError:
        return SettingError(f"{_SETTING} {self.where}.{name}", str(value), remedy)

    def text(self, name: str, default: str = "") -> str:
        value = self.left.pop(name, default)
        if not isinstance(value, str) or not (value or name in ("secret", "client_secret_file")):
            raise self.wrong(name, value or "", "use a string")
        return value.strip()

    def choice(self, name: str, options: tuple[str, ...]) -> str:
        value = self.text(name, options[0])
        if value not in options:
            raise self.wrong(name, value, f"use one of: {', '.join(options)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.left.pop(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "use true or false")
        return value

    def words(self, name: str, value: Any) -> Groups:
        if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
            raise self.wrong(name, value, "use a list of strings")
        return tuple(value)

    def groups(self, name: str, value: Any) -> dict[str, Groups]:
        if not isinstance(value, dict) or not set(value) <= set(ROLES):
            remedy = f"add lists of groups under {', '.join(ROLES)}"
            raise self.wrong(name, value, remedy)
        return {role: self.words(f"{name}.{role}", groups) for role, groups in value.items()}


def _provider(entry: Any, where: str, *, secret_allowed: bool = False) -> Provider:
    fields = _Entry(entry, where)
    if not secret_allowed and "secret" in fields.left:
        remedy = "do not store it in this file: use client_secret_file or the vault"
        raise fields.wrong("secret", "(hidden)", remedy)
    teams = fields.left.pop("teams", {})
    if not isinstance(teams, dict):
        raise fields.wrong("teams", teams, "map team slugs to lists of groups")
    provider = Provider(
        id=fields.text("id"),
        name=fields.text("name", str(entry.get("id", ""))),
        issuer=fields.text("issuer"),
        client_id=fields.text("client_id"),
        secret=fields.text("secret"),
        secret_file=fields.text("client_secret_file"),
        scopes=fields.words("scopes", fields.left.pop("scopes", list(SCOPES))),
        groups_claim=fields.text("groups_claim", "groups"),
        username_claim=fields.text("username_claim", "preferred_username"),
        new_people=fields.flag("new_people", True),
        default_role=fields.choice("default_role", DEFAULTS),
        second_factor=fields.choice("second_factor", SECOND_FACTOR),
        roles=fields.groups("roles", fields.left.pop("roles", {})),
        teams={str(team): fields.groups(f"teams.{team}", of) for team, of in teams.items()},
    )
    _check_provider(fields, provider)
    return provider


def _check_provider(fields: _Entry, found: Provider) -> None:
    if fields.left:
        raise fields.wrong(min(map(str, fields.left)), "...", "unknown field; remove it")
    if not _ID.fullmatch(found.id):
        raise fields.wrong("id", found.id, "use lower-case letters, digits and hyphens")
    if not is_safe_url(found.issuer):
        raise fields.wrong("issuer", found.issuer, "use the https:// issuer of its metadata")
    if "openid" not in found.scopes:
        raise fields.wrong("scopes", " ".join(found.scopes), "add openid")
    if found.default_role == REFUSE and not found.roles and not found.teams:
        remedy = "map groups in roles or teams, or set member: otherwise no user can sign on"
        raise fields.wrong("default_role", found.default_role, remedy)


def is_safe_url(url: object) -> bool:
    """Return whether the URL uses TLS or loopback."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK))


@dataclass(frozen=True, slots=True)
class Rights:
    role: str  # "" rejects the login
    teams: Mapping[str, str]
    groups: Groups
    claimed: bool  # whether the claim was present


def rights_of(provider: Provider, claims: Mapping[str, Any]) -> Rights:
    """Return the highest role of any group, else the provider's default."""
    value = read_claim(claims, provider.groups_claim)
    groups = _parse_words(value)
    teams = {team: _highest_role(roles, groups) for team, roles in provider.teams.items()}
    held = {team: role for team, role in teams.items() if role}
    role = _highest_role(provider.roles, groups)
    if not role:
        by_default = "" if provider.default_role == REFUSE else provider.default_role
        role = by_default or ("member" if held else "")
    return Rights(role, held, groups, value is not None)


def read_claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by name or dotted path, such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _parse_words(value: Any) -> Groups:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        return ()
    return tuple(sorted({word for word in value if isinstance(word, str)}))


def _highest_role(roles: Mapping[str, Groups], groups: Groups) -> str:
    held = set(groups)
    return next((role for role in reversed(ROLES) if held & set(roles.get(role, ()))), "")


LOCAL_LOGIN = ("everybody", "break-glass")
DEMANDED_FACTOR = ("optional", "admins", "everybody")


@dataclass(frozen=True, slots=True)
class LoginPolicy:
    local_login: str = "everybody"
    break_glass: tuple[str, ...] = ()  # user names, case-folded
    second_factor: str = "optional"
    idle: timedelta = timedelta(hours=12)
    longest: timedelta = timedelta(days=7)
    confirm: timedelta = timedelta(minutes=30)


def load_policy(env: Mapping[str, str]) -> LoginPolicy:
    local = environment.choice(env, "EMBERLINE_LOCAL_LOGIN", "everybody", LOCAL_LOGIN)
    names = tuple(name.casefold() for name in environment.split_list(env, "EMBERLINE_BREAK_GLASS"))
    if local == "break-glass" and not names:
        remedy = (
            "set at least one admin in EMBERLINE_BREAK_GLASS: otherwise no login works without SSO"
        )
        raise SettingError("EMBERLINE_LOCAL_LOGIN", local, remedy)
    idle = _number(env, "EMBERLINE_SESSION_IDLE_MINUTES", 720, 5, 60 * 24 * 30)
    longest = _number(env, "EMBERLINE_SESSION_HOURS", 168, 1, 24 * 90)
    confirm = _number(env, "EMBERLINE_CONFIRM_MINUTES", 30, 1, 60 * 24)
    return LoginPolicy(
        local_login=local,
        break_glass=names,
        second_factor=environment.choice(
            env, "EMBERLINE_SECOND_FACTOR", "optional", DEMANDED_FACTOR
        ),
        idle=timedelta(minutes=idle),
        longest=timedelta(hours=longest),
        confirm=timedelta(minutes=confirm),
    )


def _number(env: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    value = environment.text(env, name) or str(default)
    if not value.isdecimal() or not least <= int(value) <= most:
        raise SettingError(name, value, f"use an integer from {least} to {most}")
    return int(value)
