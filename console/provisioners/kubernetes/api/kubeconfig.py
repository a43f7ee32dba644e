"""Parse a kubeconfig: its contexts and their credentials.

Runs no program and reads no file named in the text: uploaded content must not select programs or
paths of this machine, so such entries are rejected with the reason. Results are secret and absent
from every repr.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from console.core import yaml_reader
from console.core.yaml_reader import YamlError

MAX_BYTES = 256 * 1024  # enough for a hundred clusters
_FILES = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
_INLINE = {
    "certificate-authority": "certificate-authority-data",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
    "tokenFile": "token",
}
_PLUGINS = {"exec": "an exec plugin", "auth-provider": "an auth-provider plugin"}
_PLUGIN_REMEDY = (
    "Create a ServiceAccount for Emberline in the cluster and use its token, or "
    'add the cluster with the connection method "context", which reads the '
    "kubeconfig on the console's own machine."
)


class KubeconfigError(ValueError):
    """Rejected kubeconfig. `path` names the part of the document; messages contain none of its
    values.
    """

    def __init__(self, path: str, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.path = path
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials and address for one context. PEM texts are decoded."""

    server: str
    namespace: str = ""
    ca_pem: str = ""
    insecure: bool = False
    tls_server_name: str = ""
    proxy: str = field(default="", repr=False)
    cert_pem: str = field(default="", repr=False)
    key_pem: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def ends_at(self) -> float | None:
        """Return the expiry of the certificate or token in epoch seconds; None if unknown."""
        ends = [
            time for time in (_certificate_ends(self.cert_pem), _token_ends(self.token)) if time
        ]
        return min(ends) if ends else None


@dataclass(frozen=True, slots=True)
class ContextSeen:
    """A listed context; `why_not` is the reason it is unusable ("" if usable)."""

    name: str
    server: str = ""
    namespace: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    current: str
    contexts: tuple[ContextSeen, ...]
    document: Mapping[str, Any] = field(repr=False)

    def login(self, context: str = "") -> Login:
        """Return the login of `context`; "" selects the current or the only one."""
        return _login(self.document, self.chosen(context))

    def chosen(self, context: str = "") -> str:
        names = [context.name for context in self.contexts]
        context_name = context or self.current or (names[0] if len(names) == 1 else "")
        if context_name in names:
            return context_name
        what = f"has no context {context_name!r}" if context_name else "names no current context"
        raise KubeconfigError(
            "current-context", f"The kubeconfig {what}.", f"Choose one of: {', '.join(names)}."
        )

    def only(self, context: str = "") -> str:
        """Return a document with that context alone, as JSON (valid YAML): store nothing else."""
        name = self.chosen(context)
        context_entry = _entry(self.document, "contexts", "context", name)
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "contexts": [{"name": name, "context": dict(context_entry)}],
        }
        for group, key in (("clusters", "cluster"), ("users", "user")):
            reference = context_entry.get(key)
            if reference:
                entry = _entry(self.document, group, key, reference)
                document[group] = [{"name": reference, key: dict(entry)}]
        return json.dumps(document)


def parse_kubeconfig(text: str) -> Kubeconfig:
    """Return every context with its verdict; raise `KubeconfigError` if this is no kubeconfig."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        remedy = f"Send only the required context, at most {MAX_BYTES // 1024} KiB."
        raise KubeconfigError("", "Too large for a kubeconfig.", remedy)
    try:
        document = yaml_reader.read_document(text)
    except YamlError as error:
        where = f" at line {error.line}" if error.line else ""
        raise KubeconfigError(
            "", f"Invalid YAML{where}.", "Paste the complete file as kubectl writes it."
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get("contexts"), list):
        remedy = "Paste the output of: kubectl config view --minify --flatten."
        raise KubeconfigError("contexts", "Not a kubeconfig: it has no contexts.", remedy)
    names = [str(context["name"]) for context in document["contexts"] if _has_name(context)]
    if not names:
        remedy = "Paste the output of: kubectl config view --minify --flatten."
        raise KubeconfigError("contexts", "The list of contexts is empty.", remedy)
    contexts = tuple(_context_seen(document, name) for name in dict.fromkeys(names))
    current = document.get("current-context")
    return Kubeconfig(current if isinstance(current, str) else "", contexts, document)


def _context_seen(document: Mapping[str, Any], name: str) -> ContextSeen:
    try:
        login = _login(document, name)
    except KubeconfigError as error:
        return ContextSeen(name, why_not=f"{error.message} {error.remedy}")
    return ContextSeen(name, login.server, login.namespace)


def _login(document: Mapping[str, Any], name: str) -> Login:
    context = _entry(document, "contexts", "context", name)
    cluster = _entry(document, "clusters", "cluster", context.get("cluster"))
    user_name = context.get("user")
    user = _entry(document, "users", "user", user_name) if user_name else {}
    _refuse_foreign(f"clusters[{context.get('cluster')}]", "cluster", cluster)
    _refuse_foreign(f"users[{user_name}]", "user", user)
    key, cert = _pem(user, "client-key-data"), _pem(user, "client-certificate-data")
    if bool(key) != bool(cert):
        missing = "client-key-data" if cert else "client-certificate-data"
        raise KubeconfigError(
            f"users[{user_name}].{missing}", f"{missing} is missing.", "The certificate has no key."
        )
    return Login(
        server=_server(cluster),
        namespace=_text(context, "namespace"),
        ca_pem=_pem(cluster, "certificate-authority-data"),
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        tls_server_name=_text(cluster, "tls-server-name"),
        proxy=_text(cluster, "proxy-url"),
        cert_pem=cert,
        key_pem=key,
        token=_text(user, "token"),
        username=_text(user, "username"),
        password=_text(user, "password"),
    )


def _refuse_foreign(where: str, kind: str, facts: Mapping[str, Any]) -> None:
    """Reject entries that run a program or read a file of this machine."""
    for key, what in _PLUGINS.items():
        if facts.get(key):
            text = (
                f"It authenticates with {what}, which would run a program on the console's machine."
            )
            raise KubeconfigError(f"{where}.{key}", text, _PLUGIN_REMEDY)
    for key in _FILES[kind]:
        if facts.get(key) and not facts.get(_INLINE[key]):
            text = f"{key} refers to a file that the console does not have."
            remedy = "Inline its content: kubectl config view --minify --flatten."
            raise KubeconfigError(f"{where}.{key}", text, remedy)


def _server(cluster: Mapping[str, Any]) -> str:
    server = _text(cluster, "server").rstrip("/")
    parts = urlsplit(server)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise KubeconfigError(
            "server", "The server address is not a URL.", "Write https://HOST:PORT."
        )
    if parts.scheme == "http" and not _loopback(parts.hostname):
        text = "A server URL without TLS would expose the credentials in clear text."
        raise KubeconfigError("server", text, "Write https://HOST:PORT.")
    return server


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _entry(document: Mapping[str, Any], group: str, key: str, name: Any) -> Mapping[str, Any]:
    entries = document.get(group)
    for entry in entries if isinstance(entries, list) else []:
        if _has_name(entry) and entry["name"] == name and isinstance(entry.get(key), dict):
            fields: Mapping[str, Any] = entry[key]
            return fields
    raise KubeconfigError(group, f"There is no {key} {name!r}.", f"Add it under {group}.")


def _has_name(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("name"), str) and bool(one["name"])


def _text(facts: Mapping[str, Any], key: str) -> str:
    value = facts.get(key, "")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise KubeconfigError(key, f"{key} is not a string.", "Put it in quotes.")
    return value


def _certificate_ends(pem: str) -> float | None:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp()
    except ValueError:
        return None


def _token_ends(token: str) -> float | None:
    """Return the expiry of a JSON web token; other token types do not carry one."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None


def _pem(facts: Mapping[str, Any], key: str) -> str:
    try:
        decoded = base64.b64decode(_text(facts, key), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise KubeconfigError(
            key, f"{key} is not base64 of PEM.", "Paste the file again."
        ) from None
    return decoded
