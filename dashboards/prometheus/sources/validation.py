"""Validate the input for a metrics source; return row values or all problems at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from console.clusters.selectors import names as cluster_names
from console.core.errors import Problem, Refused
from console.core.outbound import url_problem
from dashboards.prometheus.http.login import TENANT_HEADER, Auth, Login, LoginError
from dashboards.prometheus.sources.models import AUTHS, MetricsSource
from dashboards.prometheus.sources.selectors import FILE_NAME, OWN

SECRETS = ("secret", "key")
TEXTS = (
    *("url", "auth", "username", "secret_file", "key_file", "certificate", "ca", "tenant"),
    *("tenant_header", "region", "service", "alertmanager_url"),
)
FIELDS = (*TEXTS, *SECRETS, "cluster", "enabled")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,60}")
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_LONGEST = {"url": 500, "alertmanager_url": 500, "username": 200, "tenant": 200}
_PEM = 64 * 1024


def validate_source(
    name: Any, data: Mapping[str, Any], present: MetricsSource | None = None
) -> dict[str, Any]:
    """Return new row values with plaintext secrets; omitted fields keep their values."""
    problems = [*_shapes(data)]
    if present is None and not (isinstance(name, str) and _NAME.fullmatch(name) and name != OWN):
        remedy = f"Use 1 to 40 lower-case letters, digits and hyphens; {OWN!r} is reserved."
        problems.append(_make_problem("name", name, remedy))
    if problems:
        raise Refused(*problems)
    values = {key: value.strip() if key in TEXTS else value for key, value in data.items()}
    whole = {**_present(present), **values}
    whole["cluster"] = whole["cluster"] or None
    whole["tenant_header"] = whole["tenant_header"] or TENANT_HEADER
    whole["service"] = whole["service"] or "aps"
    problems = [
        *_addresses(whole),
        *_login(whole, present),
        *_cluster(whole),
        *_validate_pem(whole),
    ]
    if present is not None:
        problems += _validate_address_change(whole, values, present)
    if problems:
        raise Refused(*problems)
    return {key: whole[key] for key in FIELDS if key in whole and key not in SECRETS} | {
        key: values[key] for key in SECRETS if values.get(key)
    }


def _present(present: MetricsSource | None) -> dict[str, Any]:
    row = present or MetricsSource(url="")
    return {key: getattr(row, key) for key in (*TEXTS, "cluster", "enabled")}


def _shapes(data: Mapping[str, Any]) -> list[Problem]:
    shapes = []
    for key, value in data.items():
        if key not in FIELDS:
            remedy = f"Fields: {', '.join(FIELDS)}."
            shapes.append(Problem(key, None, "Unknown field.", remedy, "unknown"))
        elif key == "enabled":
            if not isinstance(value, bool):
                shapes.append(Problem(key, value, "Not a boolean.", "Send true or false.", "type"))
        elif not (isinstance(value, str) or (key == "cluster" and value is None)):
            shapes.append(Problem(key, None, "Not a string.", "Send a string.", "type"))
        elif isinstance(value, str) and (len(value) > _LONGEST.get(key, _PEM) or "\0" in value):
            remedy = f"Enter text of at most {_LONGEST.get(key, _PEM)} characters."
            shapes.append(Problem(key, None, "Too long, or not text.", remedy, "too_long"))
    return shapes


def _addresses(whole: Mapping[str, Any]) -> list[Problem]:
    addresses = []
    for key in ("url", "alertmanager_url"):
        value = whole[key]
        reason = url_problem(value) if value or key == "url" else ""
        if reason:
            remedy = "Enter http:// or https://, a host, and the path before /api/ if any."
            addresses.append(Problem(key, value.rpartition("@")[2], reason, remedy, "invalid"))
    return addresses


def _login(whole: Mapping[str, Any], present: MetricsSource | None) -> list[Problem]:
    auth = whole["auth"]
    if auth not in AUTHS:
        return [_make_problem("auth", auth, f"Choose one of: {', '.join(AUTHS)}.")]
    problems = [
        _make_problem(key, whole[key], "Enter the name of a file in the console's secrets folder.")
        for key in ("secret_file", "key_file")
        if whole[key] and not FILE_NAME.fullmatch(whole[key])
    ]
    needed = {
        Auth.BEARER: ("secret",),
        Auth.BASIC: ("username", "secret"),
        Auth.MTLS: ("certificate", "key"),
        Auth.SIGV4: ("region",),
    }.get(Auth(auth), ())
    sealed = present.sealed if present is not None else {}
    for key in needed:
        if not (whole.get(key) or whole.get(f"{key}_file") or sealed.get(key)):
            text, remedy = (
                f"{auth} requires this field.",
                "Enter it, or choose another authentication.",
            )
            problems.append(Problem(key, None, text, remedy, "required"))
    if not _HEADER.fullmatch(whole["tenant_header"]):
        problems.append(
            _make_problem(
                "tenant_header",
                whole["tenant_header"],
                "Enter a header name, such as X-Scope-OrgID.",
            )
        )
    problems += [
        _make_problem(key, whole[key], "Use the AWS notation, such as eu-central-1 or aps.")
        for key in ("region", "service")
        if whole[key] and not _REGION.fullmatch(whole[key])
    ]
    for key in ("username", "tenant", *SECRETS[:1]):
        if any(not mark.isprintable() for mark in str(whole.get(key) or "")):
            remedy = "Remove line breaks and control characters."
            problems.append(Problem(key, None, "Not valid in a header.", remedy, "invalid"))
    return problems


def _cluster(whole: Mapping[str, Any]) -> list[Problem]:
    value = whole["cluster"]
    if value is None or value in cluster_names():
        return []
    names = ", ".join(cluster_names()) or "none yet"
    return [_make_problem("cluster", value, f"Leave it empty, or choose one of: {names}.")]


def _validate_pem(whole: Mapping[str, Any]) -> list[Problem]:
    """Validate PEM texts. A certificate whose key is in a file or stored is tested on use only."""
    problems = []
    try:
        Login(ca=whole["ca"]).tls()
    except LoginError as error:
        problems.append(Problem("ca", None, str(error), "Paste the complete PEM text.", "invalid"))
    if whole["certificate"] and whole.get("key"):
        try:
            Login(certificate=whole["certificate"], key=whole["key"]).tls()
        except LoginError as error:
            remedy = "Paste both completely; the key must be unencrypted."
            problems.append(Problem("certificate", None, str(error), remedy, "invalid"))
    return problems


def _validate_address_change(
    whole: Mapping[str, Any], given: Mapping[str, Any], present: MetricsSource
) -> list[Problem]:
    """Require secrets again for a new address: else a user who may change it could capture them."""
    moved = [key for key in ("url", "alertmanager_url") if whole[key] != getattr(present, key)]
    keys = [key for key in present.sealed if not given.get(key) and not whole.get(f"{key}_file")]
    if not moved or not keys or not whole[moved[0]]:
        return []
    text = f"The {moved[0]} was changed; the stored {keys[0]} is not sent to another address."
    return [Problem(keys[0], None, text, "Enter it again.", "required")]


def _make_problem(field: str, value: Any, remedy: str) -> Problem:
    return Problem(field, value, f"Invalid value: {value!r}.", remedy, "invalid")
