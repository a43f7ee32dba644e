"""TLS configuration and SSL contexts for clients and workers.

TLS 1.2 or newer, HTTP/1.1 by ALPN. Mismatched files are rejected with the field name. Contexts are
immutable once built; changed files produce a new one.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import msgspec

from console.processkit.listener import Failed, ServerContext
from routing.engine.config.schema import LabelOrEmpty, TlsConfig, WorkerTlsConfig
from routing.engine.config.validation import ConfigError, Section, read_file


class TlsFiles(Section, frozen=True):
    cert: str = ""
    key: str = ""
    client_ca: str = ""


class WorkerTlsFiles(Section, frozen=True):
    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: LabelOrEmpty = ""
    insecure_skip_verify: bool = False


def _load_pair(context: ssl.SSLContext, name: str, cert: Path, key: Path) -> None:
    try:
        # With an empty password OpenSSL does not prompt on the terminal.
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        raise ConfigError(
            f"{name}.cert",
            str(cert),
            f"cannot be used with {key.name}: {_ssl_reason(error)}",
            "Set the certificate chain and its key, both PEM, the key unencrypted.",
        ) from None
    except OSError as error:
        raise _unreadable_file(f"{name}.cert", cert, error) from None


def _load_ca(context: ssl.SSLContext, name: str, ca: Path) -> None:
    try:
        context.load_verify_locations(cafile=ca)
    except ssl.SSLError as error:
        raise ConfigError(
            name,
            str(ca),
            f"contains no CA certificate: {_ssl_reason(error)}",
            "Use PEM certificates.",
        ) from None
    except OSError as error:
        raise _unreadable_file(name, ca, error) from None


def _unreadable_file(name: str, path: Path, error: OSError) -> ConfigError:
    """Return the error for a file that vanished during replacement."""
    return ConfigError(name, str(path), f"cannot be read: {error.strerror}", "Check the path.")


def _ssl_reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def server_context(config: TlsConfig, failed: Failed) -> ssl.SSLContext:
    """Return a listener context. `failed(reason)` is called for each failed handshake. Raise
    ConfigError.
    """
    context = ServerContext.make(failed)
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, "tls", config.cert, config.key)
    if config.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_ca(context, "tls.client_ca", config.client_ca)
    return context


def worker_context(config: WorkerTlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif config.ca is not None:
        _load_ca(context, "worker_tls.ca", config.ca)
    else:
        context.load_default_certs()
    if config.cert is not None and config.key is not None:
        _load_pair(context, "worker_tls", config.cert, config.key)
    return context


def _read_files(section: str, names: dict[str, str], base_dir: Path) -> tuple[dict[str, Path], str]:
    """Return the paths of the named files and the digest of their contents."""
    paths: dict[str, Path] = {}
    digest = hashlib.sha256()
    for field, name in names.items():
        if name:
            paths[field], content = read_file(f"{section}.{field}", name, base_dir)
            digest.update(b"%d:%b" % (len(content), content))
    if ("cert" in paths) != ("key" in paths):
        missing = "key" if "cert" in paths else "cert"
        raise ConfigError(
            f"{section}.{missing}", "", "is missing", "Set certificate and key, or neither."
        )
    return paths, digest.hexdigest() if paths else ""


def parse_tls(named: TlsFiles, base_dir: Path) -> TlsConfig | None:
    files, digest = _read_files("tls", msgspec.structs.asdict(named), base_dir)
    if not files:
        return None
    if "cert" not in files:
        raise ConfigError("tls.cert", "", "is missing", "A client_ca needs a cert and a key.")
    config = TlsConfig(**files, digest=digest)
    server_context(config, lambda _reason: None)
    return config


def parse_worker_tls(named: WorkerTlsFiles, base_dir: Path) -> WorkerTlsConfig:
    names = {"ca": named.ca, "cert": named.cert, "key": named.key}
    files, digest = _read_files("worker_tls", names, base_dir)
    if named.insecure_skip_verify and "ca" in files:
        raise ConfigError(
            "worker_tls.insecure_skip_verify",
            True,
            "has no effect with ca",
            "Remove ca or insecure_skip_verify.",
        )
    config = WorkerTlsConfig(
        **files,
        server_name=named.server_name,
        insecure_skip_verify=named.insecure_skip_verify,
        digest=digest,
    )
    if files:
        worker_context(config)
    return config
