"""Saved console addresses and tokens, and the selection of one.

A token is stored in a file readable only by its owner, is never an argument or output, and is sent
unencrypted only to this machine unless explicitly allowed.
"""

from __future__ import annotations

import ipaddress
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from console.commandline.context import FAILED, USAGE, CommandError

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Profile:
    """Address and credentials of a console. `plain`: http:// to another machine is allowed."""

    url: str
    token: str = field(default="", repr=False)
    ca_file: str = ""
    plain: bool = False


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """A console, and the option or variable that selected it."""

    profile: Profile
    named_by: str


def select_console(options: Mapping[str, Any], env: Mapping[str, str]) -> ConsoleAddress | None:
    """Return the selected console; None: the one on this machine.

    Precedence: `--local`, `--profile`, EMBERLINE_URL, EMBERLINE_PROFILE, a saved default.
    """
    if options.get("local"):
        return None
    named = options.get("profile") or ""
    if not named and env.get("EMBERLINE_URL"):
        profile = Profile(
            env["EMBERLINE_URL"],
            _token(env),
            env.get("EMBERLINE_CA_FILE", ""),
            env.get("EMBERLINE_ALLOW_HTTP", "") == "1",
        )
        return _checked(ConsoleAddress(profile, "EMBERLINE_URL"))
    by = "--profile" if named else "EMBERLINE_PROFILE"
    named = named or env.get("EMBERLINE_PROFILE", "")
    saved = read(profiles_path(env))
    if named and named not in saved:
        names = ", ".join(saved) or "none"
        text = f"{by}: unknown profile {named}. Known: {names}. Create it: "
        raise CommandError(f"{text}emberline --profile {named} login URL", USAGE)
    if not named and DEFAULT not in saved:
        return None
    return _checked(ConsoleAddress(saved[named or DEFAULT], by if named else "the saved login"))


def profiles_path(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "emberline" / "profiles.json"


def read(path: Path) -> dict[str, Profile]:
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            text = f"{path} contains tokens and is readable by other users. Run: chmod 600 {path}"
            raise CommandError(text, USAGE)
        document = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): Profile(**fields) for name, fields in document.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.", USAGE) from None
    except (ValueError, TypeError, AttributeError):
        raise CommandError(f"{path} is not valid. Delete it and log in again.", USAGE) from None


def write(path: Path, profiles: Mapping[str, Profile]) -> None:
    """Write atomically, readable only by the owner at all times."""
    new = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({name: asdict(profile) for name, profile in profiles.items()}, file, indent=2)
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise CommandError(f"{path} cannot be written: {error.strerror}.", FAILED) from None


def require_safe_url(profile: Profile) -> Profile:
    """Raise if a token would cross a network in clear text."""
    parts = urlsplit(profile.url)
    if parts.scheme == "http" and not profile.plain and not _loopback(parts.hostname or ""):
        raise CommandError(
            f"{profile.url} is not encrypted, so the token could be intercepted. "
            "Use https://, or allow it with login --allow-http or EMBERLINE_ALLOW_HTTP=1.",
            USAGE,
        )
    return profile


def _checked(found: ConsoleAddress) -> ConsoleAddress:
    require_safe_url(found.profile)
    return found


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _token(env: Mapping[str, str]) -> str:
    path = env.get("EMBERLINE_TOKEN_FILE", "")
    if not path:
        return env.get("EMBERLINE_TOKEN", "").strip()
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"EMBERLINE_TOKEN_FILE={path} cannot be read: {error}.", USAGE) from None
