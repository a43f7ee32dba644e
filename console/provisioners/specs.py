"""Validate specs before any change, independently of the provisioner.

A validated name is safe as a folder, a program name and a Kubernetes object, and a file cannot
leave its replica's folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from console.core import confined_files
from console.core.confined_files import FileRefused
from console.provisioners.base import PermanentError, Ref, TemporaryError, WorkloadSpec

_PLACEHOLDER = re.compile(r"\{(host|dir|replica|(?:port|channel):[A-Za-z0-9_-]+)\}")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Reserved for the provisioner's files beside those of the spec.
RESERVED_FOLDER = ".emberline"


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """Placeholder values of one replica."""

    host: str
    dir: str
    replica: int | str
    ports: Mapping[str, int]
    channels: Mapping[str, str] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: self._value(match.group(1)), text)

    def _value(self, name: str) -> str:
        if name == "host":
            return self.host
        if name == "dir":
            return self.dir
        if name == "replica":
            return str(self.replica)
        kind, _, argument = name.partition(":")
        values = self.ports if kind == "port" else self.channels
        if argument not in values:
            names = ", ".join(sorted(values)) or "none"
            message = f"The spec refers to {kind} {argument!r}; available: {names}."
            raise PermanentError("UnknownPort", message)
        return str(values[argument])


def check_ref(ref: Ref, provisioner: str) -> None:
    if ref.provisioner != provisioner:
        raise PermanentError(
            "WrongProvisioner", f"{ref.name!r} belongs to {ref.provisioner!r}, not {provisioner!r}."
        )
    _check_name(ref.name)


def check_spec(spec: WorkloadSpec) -> None:
    _check_name(spec.name)
    if not spec.argv:
        raise PermanentError("BadSpec", f"Workload {spec.name!r} has no command.")
    if spec.replicas < 0:
        raise PermanentError(
            "BadSpec", f"Workload {spec.name!r} has an invalid replica count: {spec.replicas}."
        )
    if spec.probe.port not in spec.ports:
        raise PermanentError(
            "UnknownPort", f"The probe of {spec.name!r} refers to unknown port {spec.probe.port!r}."
        )
    _check_placeholders(spec)
    for variable in (*spec.env, *spec.secret_env):
        if not _VARIABLE.fullmatch(variable):
            raise PermanentError(
                "BadSpec", f"{variable!r} is not a valid environment variable name."
            )
    paths: set[PurePosixPath] = set()
    for file_path in (*(file.path for file in (*spec.files, *spec.live_files)), *spec.secret_files):
        path = PurePosixPath(file_path)
        inside = path.parts and not path.is_absolute() and ".." not in path.parts
        if not inside or path.parts[0] == RESERVED_FOLDER:
            raise PermanentError("BadSpec", f"File {file_path!r} is outside the replica's folder.")
        if path in paths:
            raise PermanentError("BadSpec", f"File {file_path!r} is given twice.")
        paths.add(path)


def _check_placeholders(spec: WorkloadSpec) -> None:
    replica_facts = ReplicaFacts(
        "", "", 0, dict.fromkeys(spec.ports, 0), dict.fromkeys(spec.channels, "")
    )
    files = (file.content for file in (*spec.files, *spec.live_files))
    for text in (*spec.argv, *spec.env.values(), *files):
        replica_facts.fill(text)


def _check_name(name: str) -> None:
    if not _LABEL.fullmatch(name):
        raise PermanentError(
            "BadName",
            f"{name!r} is not a valid workload name: use at most 63 characters of "
            "a-z, 0-9 and dashes.",
        )


def read_secrets(
    named: Mapping[str, str], within: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Read the files in `named` (name to path); those in `within` only from that folder. Strip a
    trailing line end.
    """
    secrets = {}
    for name, path in named.items():
        folder = (within or {}).get(name, "")
        try:
            text = (
                confined_files.read_text(path, Path(folder))
                if folder
                else Path(path).read_text("utf-8")
            )
            secrets[name] = text.rstrip("\r\n")
        except FileRefused as refused:
            kind = PermanentError if refused.outside else TemporaryError
            raise kind(
                "SecretMissing", f"The secret for {name} cannot be read: {refused}."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise TemporaryError(
                "SecretMissing", f"The secret for {name} cannot be read from {path}."
            ) from error
    return secrets
