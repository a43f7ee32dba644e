"""Validators of single texts in a spec: names, models, addresses, arguments.

Each problem has a message, a remedy and a stable code, and never repeats a possible secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from cachetier.client.node_list import Nodes
from console.core.addresses import host_problem
from console.core.state_store import is_store_url

Problem = tuple[str, str, str]
"""message, remedy, code"""

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_HF_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_MODEL_WORD = re.compile(r"[A-Za-z0-9][\w.-]*")
_SESSION_KEY = re.compile(r"(header|cookie):[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}|body:[\w.-]{1,64}")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?", re.DOTALL)
_ADDRESSES = ("cache.l2.url", "router.state_store.url")
_MAY_HOLD_SECRETS = frozenset({"pod.env", "pod.env_from", "pod.init_containers", "manifest"})
# Flags and JSON keys whose values are secrets; `max-tokens` and `tokenizer` are not.
_SECRET_WORD = re.compile(
    r"(?i)(?<![a-z])(?:api[-_]?key|(?:access|secret|private|auth|encryption)[-_]?key|password"
    r"|passwd|secret|credentials?|bearer|(?:hf|auth|access|api)[-_]token|token(?![a-z]))(?![a-z])"
)
_URL_PASSWORD = re.compile(r"(://)[^/@\s]+@")
_STORE_USER = re.compile(r"[\x21-\x7e]{1,128}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\s]+")
_ALIAS = re.compile(r"[A-Za-z0-9][\w./:-]{0,127}")
_SHORT_FLAGS = {
    "-dp": "--data-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-tp": "--tensor-parallel-size",
}
ANY_HOST = "*"
RESERVED_NAMES = ("new", "apply", "import", "followed")

# Flags set by Emberline, with the reason.
OWN_FLAGS = {
    **dict.fromkeys(
        ("--host", "--port", "--listen", "--uds"), "the provisioner assigns the address"
    ),
    "--root-path": "the router forwards paths unchanged",
    "--model": "the field model sets it",
    "--served-model-name": "the fields name, model and aliases set it",
    "--block-size": "the field cache.l1.chunk_tokens sets it",
    "--enable-prefix-caching": "the KV cache requires it",
    "--no-enable-prefix-caching": "the KV cache requires it",
    "--prefix-caching-hash-algo": "all workers that share L2 must agree on it",
    "--kv-events-config": "the router requires its own value",
    "--enable-prompt-tokens-details": "the dashboards require it",
    "--enable-scale-out": "kvaware requires the worker's renderer",
    "--api-key": "secrets do not belong on a command line; create a key on the endpoint's page",
    "--hf-token": "secrets do not belong on a command line; put the model into a folder",
    **dict.fromkeys(
        ("--ssl-keyfile", "--ssl-certfile"), "workers are reached through the router only"
    ),
    "--config": "a file could override the fields of the endpoint",
    "--headless": "a worker must serve HTTP",
    **dict.fromkeys(
        ("--l1-bytes", "--l1-policy", "--l2-url", "--l2-ttl"), "the fields under cache set it"
    ),
}

_CONNECTOR_FLAGS = ("--kv-transfer-config", "--kv-offloading-size", "--kv-offloading-backend")


def name_problem(value: str) -> Problem | None:
    remedy = "Use up to 40 lower-case letters, digits and dashes, starting with a letter."
    if len(value) > 40 or not _NAME.fullmatch(value):
        return f"{value!r} is not a valid name.", remedy, "invalid_name"
    if value in RESERVED_NAMES:
        problem = f"{value!r} is reserved by the console's URLs."
        return problem, "Choose another name.", "reserved_name"
    return None


def model_problem(value: str) -> Problem | None:
    if value.startswith("/") or _HF_ID.fullmatch(value) or _MODEL_WORD.fullmatch(value):
        return None
    return (
        f"{value!r} is not a known model, an absolute path or a Hugging Face name.",
        "Give a known model, organisation/name or an absolute path.",
        "invalid_model",
    )


def session_key_problem(value: str) -> Problem | None:
    if _SESSION_KEY.fullmatch(value):
        return None
    return (
        f"{value!r} is not a session key.",
        "Write header:NAME, cookie:NAME or body:FIELD, such as header:x-session-id.",
        "invalid_session_key",
    )


def redis_url_problem(value: str) -> Problem | None:
    if not value:
        return None
    remedy = (
        "Write redis://HOST:PORT, rediss:// for TLS, several hosts joined by commas, "
        "?nodes=cluster for a Redis Cluster."
    )
    if "@" in value:
        return (
            "The URL contains a user name or password.",
            "Remove it and set cache.l2.password_file.",
            "secret_in_url",
        )
    if value.partition(":")[0] not in ("redis", "rediss"):
        return f"The scheme {value.partition(':')[0]!r} is not supported.", remedy, "invalid_scheme"
    try:
        nodes = Nodes.parse(value)
        for address in nodes.addresses:
            address.host.encode("idna")  # fails for unresolvable names
    except ValueError as error:
        return f"Invalid URL: {error}.", remedy, "invalid_url"
    if any(not address.port > 0 or not 0 <= address.database < 1000 for address in nodes.addresses):
        return "The port or the database number is out of range.", remedy, "invalid_url"
    return _host_problem(address.host for address in nodes.addresses)


def _host_problem(hosts: Iterable[str]) -> Problem | None:
    """Refuse addresses that are no server's: link-local ones and cloud metadata services."""
    for host in hosts:
        message = host_problem(host)
        if message:
            return message, "Give the address of a Valkey or Redis.", "forbidden_address"
    return None


def store_url_problem(value: str) -> Problem | None:
    if not value:
        return None
    remedy = "Write redis://HOST:PORT/DATABASE, or rediss:// for TLS."
    if "@" in value:
        return (
            "The URL contains a user name or password.",
            "Remove it and set the user and the password file of the state store.",
            "secret_in_url",
        )
    scheme = value.partition(":")[0]
    if scheme not in ("redis", "rediss"):
        return f"The scheme {scheme!r} is not supported.", remedy, "invalid_scheme"
    if "," in value or "nodes=" in value:
        message = "A state store is a single server: no Redis Cluster, no list of hosts."
        return message, remedy, "not_supported"
    if not is_store_url(value):
        return "Not the URL of a Valkey or Redis.", remedy, "invalid_url"
    return _host_problem([urlsplit(value).hostname or ""])


def store_user_problem(value: str) -> Problem | None:
    if not value or _STORE_USER.fullmatch(value):
        return None
    remedy = "Use up to 128 printable ASCII characters without spaces."
    return f"{value!r} is not a valid user name.", remedy, "invalid_user"


def media_domains_problem(value: tuple[str, ...]) -> Problem | None:
    """Require lower-case hosts: vLLM compares the whole host of a URL."""
    for domain in value:
        if not _HOST.fullmatch(domain) and value != (ANY_HOST,):
            remedy = "Give host names in lower case, such as images.example.com, or * alone."
            return f"{domain!r} is not a host name.", remedy, "invalid_host"
    return None


def allowed_origins_problem(value: tuple[str, ...]) -> Problem | None:
    for origin in value:
        if not _ORIGIN.fullmatch(origin) and value != (ANY_HOST,):
            remedy = "Write scheme, host and port, such as https://app.example.com, or * alone."
            return f"{origin!r} is not an origin.", remedy, "invalid_origin"
    return None


def weights_version_problem(value: str) -> Problem | None:
    if len(value) <= 128 and not CONTROL.search(value):
        return None
    return "The weights version is too long or has control characters.", "Shorten it.", "invalid"


def aliases_problem(value: tuple[str, ...]) -> Problem | None:
    for index, alias in enumerate(value):
        if not _ALIAS.fullmatch(alias):
            remedy = "Use up to 128 letters, digits, dots, colons, slashes, dashes and underscores."
            return f"{alias!r} is not a model name.", remedy, "invalid_name"
        if alias in value[:index]:
            return f"{alias!r} is listed twice.", "Remove one of them.", "duplicate"
    return None


def url_files(url: str) -> tuple[str, ...]:
    """Return the TLS files in a Redis URL; () for an invalid URL."""
    try:
        nodes = Nodes.parse(url)
    except ValueError:
        return ()
    named = [(address.ca_file, address.cert_file, address.key_file) for address in nodes.addresses]
    return tuple(dict.fromkeys(path for files in named for path in files if path))


def password_file_problem(value: str) -> Problem | None:
    if not value or value.startswith("/"):
        return None
    return "The password file must be an absolute path.", "Start it with /.", "invalid_path"


def redact(path: str, value: Any) -> Any:
    """Return the value for errors and logs, without possible secrets."""
    if path in _ADDRESSES and isinstance(value, str):
        value = value.partition("?")[0]
        scheme = value.partition("://")[0] + "://" if "://" in value else ""
        return f"{scheme}***@{value.rpartition('@')[2]}" if "@" in value else value
    if path == "worker_args" and isinstance(value, list | tuple):
        return _redact_arguments(value)
    if path in _MAY_HOLD_SECRETS and isinstance(value, Mapping):
        return dict.fromkeys(value, "…")
    return "…" if path in _MAY_HOLD_SECRETS and value else value


def _redact_arguments(arguments: Sequence[Any]) -> list[Any]:
    """Return arguments with the values of secret flags and passwords in URLs hidden."""
    redacted: list[Any] = []
    hides = False  # the next value belongs to a secret flag
    for argument in arguments:
        if not isinstance(argument, str):
            redacted.append(argument)
            continue
        flag = flag_of(argument)
        is_secret = _SECRET_WORD.search(flag) is not None
        if flag and is_secret and "=" in argument:
            argument = f"{argument.partition('=')[0]}=…"
        elif (hides and not flag) or (not flag and _SECRET_WORD.search(argument)):
            argument = "…"
        else:
            argument = _URL_PASSWORD.sub(r"\1…@", argument)
            if flag and "=" in argument and _SECRET_WORD.search(argument.partition("=")[2]):
                argument = f"{argument.partition('=')[0]}=…"
        hides = bool(flag) and is_secret
        redacted.append(argument)
    return redacted


def flag_of(argument: str) -> str:
    """Return an argument's flag as vLLM reads it: `--served_model_name=x` → `--served-model-name`.
    Empty if the argument is the value of the preceding flag.
    """
    if not _FLAG.fullmatch(argument):
        return ""
    return argument.partition("=")[0].replace("_", "-")


def split_arguments(arguments: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each flag, by its long name, with its values."""
    flag, values = "", list[str]()
    for argument in arguments:
        named = flag_of(argument)
        if not named:
            values.append(argument)
            continue
        if flag:
            yield flag, values
        _, is_joined, value = argument.partition("=")
        flag, values = _SHORT_FLAGS.get(named, named), [value] if is_joined else []
    if flag:
        yield flag, values


def _own_flag(flag: str, flags: Collection[str] = OWN_FLAGS) -> str:
    """Return the flag of these that vLLM would read: it accepts abbreviations and `--flag.key`."""
    whole = flag.partition(".")[0]
    if whole in flags:
        return whole
    if len(whole) < 3:
        return ""
    return next((own for own in flags if own.startswith(whole)), "")


def connector_flag(arguments: Iterable[str]) -> str:
    """Return the first argument that configures a KV connector, as it is written."""
    flags = (flag_of(argument) for argument in arguments)
    return next((flag for flag in flags if _own_flag(flag, _CONNECTOR_FLAGS)), "")


def worker_args_problem(value: tuple[str, ...]) -> Problem | None:
    if value and not flag_of(value[0]):
        return (
            f"{value[0]!r} is not a flag.",
            "Start with a flag, one argument per line, such as --max-model-len=2048.",
            "invalid_argument",
        )
    if any(CONTROL.search(item) or not item for item in value):
        return (
            "An argument is empty or contains control characters.",
            "Give one argument per line.",
            "invalid_argument",
        )
    for item in value:
        own = _own_flag(flag_of(item))
        if own:
            flag = flag_of(item)
            spelling = own if own == flag else f"{flag} (read as {own})"
            return (
                f"{spelling} is set by Emberline: {OWN_FLAGS[own]}.",
                f"Remove {flag}.",
                "collision",
            )
    return None


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def object_name_problem(value: str) -> Problem | None:
    if not value or _SUBDOMAIN.fullmatch(value):
        return None
    remedy = "Use lower-case letters, digits, dashes and dots."
    return f"{value!r} is not a valid Kubernetes name.", remedy, "invalid_name"


def label_name_problem(value: str) -> Problem | None:
    if not value or _LABEL.fullmatch(value):
        return None
    remedy = "Use up to 63 lower-case letters, digits and dashes."
    return f"{value!r} is not a valid Kubernetes name.", remedy, "invalid_name"


def path_problem(value: str) -> Problem | None:
    if not value or (value.startswith("/") and ".." not in value.split("/")):
        return None
    return (
        "The path must be absolute and must not contain '..'.",
        "Start it with /.",
        "invalid_path",
    )


def key_values(text: str) -> Mapping[str, str] | str:
    """Parse pairs such as `team=search, app=chat`, one per line or separated by commas; return the
    text itself if a part has no `=`.
    """
    parts = [part.strip() for part in re.split(r"[,\n]", text) if part.strip()]
    if not all("=" in part for part in parts):
        return text
    pairs = (part.partition("=") for part in parts)
    return {name.strip(): value.strip() for name, _, value in pairs}


def key_values_problem(value: Mapping[str, Any]) -> Problem | None:
    for name, text in value.items():
        if not _QUALIFIED.fullmatch(name):
            remedy = "Write names such as team or example.com/team."
            return f"{name!r} is not a valid key.", remedy, "invalid_key"
        if not isinstance(text, str) or CONTROL.search(text):
            return f"The value of {name!r} is not a text.", 'Write it as "text".', "invalid_value"
    return None


def env_problem(value: Mapping[str, Any]) -> Problem | None:
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name):
            remedy = "Use letters, digits and _, such as HF_HOME."
            return f"{name!r} is not a valid variable name.", remedy, "invalid_key"
        if not isinstance(text, str):
            return f"The value of {name!r} is not a text.", 'Write it as "text".', "invalid_value"
    return None


def objects_problem(value: Sequence[Any]) -> Problem | None:
    if all(isinstance(item, dict) for item in value):
        return None
    return "An item is not an object.", "Give a list of objects.", "invalid_item"
