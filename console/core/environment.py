"""Typed configuration of a console process from environment variables.

An invalid value stops the start with a message that names the variable, its value and the fix.
Every secret may come from a file named by a variable that ends in _FILE. Generated secrets are
random, created once and readable only by their owner.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from console.core import outbound
from console.core.state_store import StateStore, StateStoreError, read_state_store

WORKER_KINDS = ("vllm", "simulated")
PROVISIONERS = ("local", "fake", "kubernetes")
BROKER_SCHEMES = ("redis://", "rediss://", "unix://", "memory://")
_MIN_KEY = 32
_DURATION = re.compile(r"[1-9][0-9]{0,5}[hdwy]")
_HOST_NAME = re.compile(r"\*|\.?[\w-]+(\.[\w-]+)*|\[[0-9A-Fa-f:.]+\]")
_SIZE = re.compile(r"0|[1-9][0-9]{0,5}(MB|GB|TB)")
KEYS = ("file", "database")
LOG_FORMATS = ("line", "json")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_AUTO_CALIBRATION = "EMBERLINE_AUTO_CALIBRATION"
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")


class SettingError(ValueError):
    """A variable has an unusable value; the text states the fix."""

    def __init__(self, name: str, value: str, remedy: str) -> None:
        super().__init__(f"{name}={value!r} is invalid: {remedy}")
        self.name = name
        self.remedy = remedy


class ReadVariables(Mapping[str, str]):
    """Environment variables; `names`: all that were asked for, also those that are not set."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return self._env[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._env)

    def __len__(self) -> int:
        return len(self._env)


@dataclass(frozen=True, slots=True)
class PrometheusLogin:
    """Credentials for PROMETHEUS_URL. Files are read at use, because tokens in them are renewed."""

    auth: str = "none"
    username: str = ""
    secret: str = field(default="", repr=False)
    secret_file: Path | None = None
    tenant: str = ""
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    region: str = ""


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of this machine's Prometheus, in its own format; the limit reached first applies.
    `size` "0" is unlimited.
    """

    time: str = "30d"
    size: str = "10GB"

    def __str__(self) -> str:
        return f"{self.time}, {self.size} at most" if self.size != "0" else self.time


@dataclass(frozen=True, slots=True)
class Emberline:
    """Configuration of this installation (`settings.EMBERLINE`)."""

    var: Path
    workers: str
    redis_url: str = field(repr=False)  # may contain a password
    prometheus_url: str
    prometheus_login: PrometheusLogin
    prometheus_embedded: bool  # runs on this machine
    prometheus_retention: Retention  # of the embedded one
    alertmanager_url: str  # Alertmanager of this installation, "" if none
    alertmanager_username: str
    alertmanager_password_file: Path | None
    alertmanager_file: Path | None  # its configuration, written by the console; None: not ours
    metrics_secrets: Path  # folder with secret files that metrics sources may name
    targets_token_file: Path
    host: str
    port: int
    provisioner: str
    vllm_python: Path
    engine_path: str  # PYTHONPATH of engines on this machine: their compiled copy, "" if none
    install_id: str
    alert_objects: tuple[str, ...]
    alert_object_labels: tuple[tuple[str, str], ...]
    worker_image: str
    engine_image: str
    encryption_keys: tuple[str, ...] = field(repr=False)  # the first encrypts, all decrypt
    static_root: Path
    l2_password_file: Path
    l2_secrets: Path  # folder with secret files that endpoints may name for their own Redis
    keys: str  # storage of the console's own endpoint keys
    admin: str  # HOST:PORT of this process's metrics and health checks, "" if none
    log_format: str
    log_level: str
    public_url: str  # external address of the console for links in alerts; "" if unknown
    outbound_allow: tuple[outbound.Allowed, ...] = ()  # see console/core/outbound.py
    auto_calibration: bool = True  # unless changed in Settings
    state_store: StateStore | None = None  # of routers on the console's own cluster
    model_hub: str = ""  # where model names are checked for existence, "" for no check

    @property
    def secrets(self) -> Path:
        return self.var / "secrets"


def text(env: Mapping[str, str], name: str, default: str = "") -> str:
    """Return the variable, or the content of the file named by `<name>_FILE`."""
    path = env.get(f"{name}_FILE", "")
    if not path:
        return env.get(name, default).strip()
    if env.get(name):
        raise SettingError(f"{name}_FILE", path, f"{name} is also set; keep only one of the two")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        remedy = f"the file cannot be read ({error.strerror}); correct the path or its rights"
        raise SettingError(f"{name}_FILE", path, remedy) from error


def flag(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name, "").strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise SettingError(name, value, "write 1 or 0")


def choice(env: Mapping[str, str], name: str, default: str, options: tuple[str, ...]) -> str:
    value = text(env, name, default) or default
    if value not in options:
        raise SettingError(name, value, f"write one of: {', '.join(options)}")
    return value


def port(env: Mapping[str, str], name: str, default: int) -> int:
    value = text(env, name) or str(default)
    if not value.isdecimal() or not 0 < int(value) < 65536:
        raise SettingError(name, value, "write a port number from 1 to 65535")
    return int(value)


def log_level(env: Mapping[str, str]) -> str:
    name = "EMBERLINE_LOG_LEVEL"
    return choice({name: text(env, name).upper()}, name, "INFO", LOG_LEVELS)


def address(env: Mapping[str, str], name: str) -> str:
    """Return HOST:PORT, "" for no listener."""
    value = text(env, name)
    host, _, number = value.rpartition(":")
    if value and not (host and number.isdecimal() and 0 < int(number) < 65536):
        raise SettingError(name, value, "write HOST:PORT, such as 0.0.0.0:9100")
    return value


def url_with_password(env: Mapping[str, str], name: str, password: str) -> str:
    """Return the URL `name` with the secret `password` inserted if both are set, so that the URL is
    public and the password may contain any character.
    """
    url, secret = text(env, name), text(env, password)
    if not secret:
        return url
    parts = urlsplit(url)
    if not parts.hostname:
        raise SettingError(password, "...", f"{name} has no host to use it for; set {name} as well")
    if parts.password:
        raise SettingError(password, "...", f"{name} also contains a password; keep only one")
    who, _, where = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{who}:{quote(secret, safe='')}@{where}"))


def database_url(env: Mapping[str, str], default: str) -> str:
    url = url_with_password(env, "DATABASE_URL", "EMBERLINE_DATABASE_PASSWORD") or default
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("postgres", "postgresql", "sqlite") and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        remedy = "write postgres://USER@HOST:PORT/DATABASE, with special characters percent-encoded"
        raise SettingError("DATABASE_URL", "(hidden)", remedy)
    return url


def split_list(env: Mapping[str, str], name: str) -> list[str]:
    """Split a comma-separated list, dropping empty items."""
    return [item.strip() for item in text(env, name).split(",") if item.strip()]


def http_url(env: Mapping[str, str], name: str) -> str:
    """Return an HTTP address without credentials and trailing slash, "" if unset."""
    url = text(env, name)
    problem = outbound.syntax_problem(url) if url else ""
    if problem:
        reason = f"{problem[0].lower()}{problem[1:].rstrip('.')}"
        shown = "(hidden)" if "@" in url else url
        raise SettingError(name, shown, f"{reason}; write https://HOST[:PORT]")
    return url.rstrip("/")


def host_names(env: Mapping[str, str], name: str) -> list[str]:
    hosts = split_list(env, name)
    for host in hosts:
        if not _HOST_NAME.fullmatch(host):
            remedy = "write host names without scheme, port or path, such as emberline.example.com"
            raise SettingError(name, host, remedy)
    return hosts


def origins(env: Mapping[str, str], name: str) -> list[str]:
    urls = [url.rstrip("/") for url in split_list(env, name)]
    for url in urls:
        if outbound.syntax_problem(url) or urlsplit(url).path:
            remedy = "write scheme and host, with the port if any, such as https://example.com"
            raise SettingError(name, url, remedy)
    return urls


def generated_secret(path: Path, length: int = 48) -> str:
    """Return the secret in the file, created atomically on first use."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(length), encoding="utf-8")
        try:
            os.link(draft, path)  # fails if another process was first: never overwrites
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text(encoding="utf-8").strip()


def encryption_keys(env: Mapping[str, str], path: Path) -> tuple[str, ...]:
    """Return the keys of the environment, separated by whitespace, else this machine's own."""
    keys = tuple(text(env, "EMBERLINE_ENCRYPTION_KEY").split())
    if any(len(key) < _MIN_KEY for key in keys):
        remedy = (
            f"write at least {_MIN_KEY} random characters, for example from `openssl rand -hex 32`"
        )
        raise SettingError("EMBERLINE_ENCRYPTION_KEY", "(hidden)", remedy)
    return keys or (generated_secret(path, 32),)


def prometheus_login(env: Mapping[str, str]) -> PrometheusLogin:
    """Return the credentials given: bearer token, user and password, client certificate, or AWS."""
    ways = {
        "bearer": ("PROMETHEUS_BEARER_TOKEN", "PROMETHEUS_BEARER_TOKEN_FILE"),
        "basic": ("PROMETHEUS_USERNAME",),
        "mtls": ("PROMETHEUS_CERT_FILE",),
        "sigv4": ("PROMETHEUS_SIGV4_REGION",),
    }
    chosen = [way for way, names in ways.items() if any(env.get(name) for name in names)]
    if len(chosen) > 1:
        name = ways[chosen[1]][0]
        remedy = f"{ways[chosen[0]][0]} is also set; keep one way to log in"
        raise SettingError(name, "...", remedy)
    way = chosen[0] if chosen else "none"
    secret = {"bearer": "PROMETHEUS_BEARER_TOKEN", "basic": "PROMETHEUS_PASSWORD"}.get(way, "")
    if secret and env.get(secret) and env.get(f"{secret}_FILE"):
        raise SettingError(secret, "...", f"{secret}_FILE is also set; keep only one of the two")
    return PrometheusLogin(
        auth=way,
        username=text(env, "PROMETHEUS_USERNAME"),
        secret=env.get(secret, "").strip(),
        secret_file=_path_setting(env, f"{secret}_FILE") if secret else None,
        tenant=text(env, "PROMETHEUS_TENANT"),
        ca_file=_path_setting(env, "PROMETHEUS_CA_FILE"),
        certificate_file=_path_setting(env, "PROMETHEUS_CERT_FILE"),
        key_file=_path_setting(env, "PROMETHEUS_KEY_FILE"),
        region=text(env, "PROMETHEUS_SIGV4_REGION"),
    )


def retention(env: Mapping[str, str]) -> Retention:
    """Validate here: an invalid value would only appear in the log of a failed Prometheus."""
    limit = Retention(
        text(env, "EMBERLINE_PROMETHEUS_RETENTION") or Retention().time,
        text(env, "EMBERLINE_PROMETHEUS_RETENTION_SIZE") or Retention().size,
    )
    if not _DURATION.fullmatch(limit.time):
        remedy = "write a number and h, d, w or y, such as 30d"
        raise SettingError("EMBERLINE_PROMETHEUS_RETENTION", limit.time, remedy)
    if not _SIZE.fullmatch(limit.size):
        remedy = "write a number and MB, GB or TB, such as 10GB, or 0 for no limit"
        raise SettingError("EMBERLINE_PROMETHEUS_RETENTION_SIZE", limit.size, remedy)
    return limit


def load(env: Mapping[str, str], repo: Path) -> Emberline:
    var = Path(env.get("EMBERLINE_VAR") or repo / "var").expanduser().absolute()
    try:
        (var / "secrets").mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        remedy = f"write a folder that can be created and written ({error.strerror})"
        raise SettingError("EMBERLINE_VAR", str(var), remedy) from None
    broker = url_with_password(env, "REDIS_URL", "EMBERLINE_REDIS_PASSWORD")
    broker = _with_certificate_check(broker) or "redis://127.0.0.1:6379/0"
    if not broker.startswith(BROKER_SCHEMES):
        excerpt = broker.split("://", 1)[0] + "://..."
        raise SettingError("REDIS_URL", excerpt, "write redis://HOST:PORT/DB or rediss://...")
    python = text(env, "EMBERLINE_VLLM_PYTHON")
    provisioner = choice(env, "EMBERLINE_PROVISIONER", "local", PROVISIONERS)
    # Console pods share no folder.
    keys = "database" if provisioner == "kubernetes" else "file"
    return Emberline(
        var=var,
        workers=choice(env, "WORKERS", "vllm", WORKER_KINDS),
        redis_url=broker,
        prometheus_url=http_url(env, "PROMETHEUS_URL"),
        prometheus_login=prometheus_login(env),
        prometheus_embedded=flag(env, "EMBERLINE_PROMETHEUS_EMBEDDED"),
        prometheus_retention=retention(env),
        alertmanager_url=http_url(env, "ALERTMANAGER_URL"),
        alertmanager_username=text(env, "ALERTMANAGER_USERNAME"),
        alertmanager_password_file=_path_setting(env, "ALERTMANAGER_PASSWORD_FILE"),
        alertmanager_file=_path_setting(env, "EMBERLINE_ALERTMANAGER_FILE"),
        metrics_secrets=_path(env, "EMBERLINE_METRICS_SECRETS", var / "secrets" / "metrics"),
        targets_token_file=_path(
            env, "EMBERLINE_TARGETS_TOKEN_FILE", var / "secrets/targets_token"
        ),
        host=text(env, "EMBERLINE_HOST") or "127.0.0.1",
        port=port(env, "EMBERLINE_PORT", 8000),
        provisioner=provisioner,
        engine_path=text(env, "EMBERLINE_ENGINE_PATH"),
        vllm_python=Path(python) if python else repo / ".venv-vllm" / "bin" / "python",
        worker_image=text(env, "EMBERLINE_WORKER_IMAGE"),
        engine_image=text(env, "EMBERLINE_ENGINE_IMAGE"),
        encryption_keys=encryption_keys(env, var / "secrets" / "encryption_key"),
        install_id=text(env, "EMBERLINE_INSTALL_ID")
        or generated_secret(var / "secrets" / "install_id", 9),
        alert_objects=_alert_objects(env),
        alert_object_labels=_labels(env, "EMBERLINE_ALERT_OBJECT_LABELS"),
        static_root=_path(env, "EMBERLINE_STATIC", var / "static"),
        l2_password_file=_path(env, "EMBERLINE_L2_PASSWORD_FILE", var / "secrets/l2_password"),
        l2_secrets=_l2_secrets(env, var),
        keys=choice(env, "EMBERLINE_KEYS", keys, KEYS),
        admin=address(env, "EMBERLINE_ADMIN"),
        log_format=choice(env, "EMBERLINE_LOG_FORMAT", "line", LOG_FORMATS),
        log_level=log_level(env),
        public_url=http_url(env, "EMBERLINE_PUBLIC_URL"),
        outbound_allow=_outbound_allow(env),
        auto_calibration=not text(env, _AUTO_CALIBRATION) or flag(env, _AUTO_CALIBRATION),
        state_store=_state_store(env),
        model_hub=_model_hub(env),
    )


def _state_store(env: Mapping[str, str]) -> StateStore | None:
    try:
        return read_state_store(env)
    except StateStoreError as error:
        raise SettingError(error.name, error.value, error.remedy) from None


def _model_hub(env: Mapping[str, str]) -> str:
    value = text(env, "EMBERLINE_MODEL_HUB", "https://huggingface.co")
    if value and outbound.url_problem(value):
        remedy = "write an address such as https://huggingface.co, or leave it empty for no check"
        raise SettingError("EMBERLINE_MODEL_HUB", value, remedy)
    return value


def _outbound_allow(env: Mapping[str, str]) -> tuple[outbound.Allowed, ...]:
    try:
        return tuple(map(outbound.parse_allowed, split_list(env, outbound.SETTING)))
    except ValueError as error:
        remedy = f"write addresses or networks, each with an optional :PORT ({error})"
        raise SettingError(outbound.SETTING, text(env, outbound.SETTING), remedy) from None


def _l2_secrets(env: Mapping[str, str], var: Path) -> Path:
    """Require a folder that contains none of the console's own files: users name files in it."""
    name = "EMBERLINE_L2_SECRETS"
    folder = _path(env, name, var / "secrets" / "l2").resolve()
    own = [
        var / "secrets",
        *(Path(env[path]) for path in env if path.endswith("_FILE") and env[path]),
    ]
    for path in own:
        if path.resolve().is_relative_to(folder):
            remedy = f"{path} is inside it; choose a folder that contains no console files"
            raise SettingError(name, str(folder), remedy)
    return folder


def _alert_objects(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the alert objects stored in the console's own cluster by default."""
    objects = tuple(filter(None, text(env, "EMBERLINE_ALERT_OBJECTS").split(",")))
    if not set(objects) <= {"rules", "receivers"}:
        raise SettingError("EMBERLINE_ALERT_OBJECTS", ",".join(objects), "write rules,receivers")
    return objects


def _labels(env: Mapping[str, str], name: str) -> tuple[tuple[str, str], ...]:
    pairs = [pair.partition("=") for pair in text(env, name).split(",") if pair]
    if any(not separator for _, separator, _ in pairs):
        raise SettingError(name, text(env, name), "write NAME=VALUE,NAME=VALUE")
    return tuple((key.strip(), value.strip()) for key, _, value in pairs)


def _with_certificate_check(url: str) -> str:
    """Require certificate verification with TLS; Celery needs it in the URL."""
    if not url.startswith("rediss://") or "ssl_cert_reqs=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"


def _path_setting(env: Mapping[str, str], name: str) -> Path | None:
    value = env.get(name, "").strip()
    return Path(value).expanduser().absolute() if value else None


def _path(env: Mapping[str, str], name: str, default: Path) -> Path:
    description = env.get(name, "").strip()
    return Path(description).expanduser().absolute() if description else default
