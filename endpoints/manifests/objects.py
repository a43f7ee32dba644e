"""Parse and validate one manifest object, and advisories on it.

A returned object fits its version's schema (with Emberline's relaxations), without fields that the
API server adds (status, uid, managed fields).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from console.core.errors import Problem
from endpoints.manifests import schemas
from endpoints.manifests.foreign import misplaced
from endpoints.manifests.structural_schema import check, schema_error
from endpoints.spec.endpoint_spec import SpecErrors

SERVER_FIELDS: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
FINALIZER: Final = "emberline.dev/endpoint"
"""Set on followed objects, so that their endpoint is deleted first."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_METADATA = ("annotations", "finalizers", "labels", "name", "namespace", "ownerReferences")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w*(?::?[-=?+][^}]*)?\}")
_TEMPLATE = re.compile(r"\{\{-? *(?:\.|include |tpl |toYaml )[^}]*\}\}")
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w .:/-]*>")
# Texts such as <think> may be meant in arguments and variables.
_CLEAR_PLACEHOLDER = re.compile(r"<(?:[A-Z][A-Z0-9]*|[A-Za-z][A-Za-z0-9]*(?:[-_ ][A-Za-z0-9]+)+)>")
_FREE_TEXT = re.compile(r"\.args\[|\.command\[|environmentVariables\[|annotations|\.env\[")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A validated object. `whole`: the complete input without server-side fields.

    `own_image`: the installation's worker image.
    """

    kind: str
    version: str
    name: str
    namespace: str
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    whole: Mapping[str, Any]
    own_image: str = ""

    @property
    def shown(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def is_manifest(document: Mapping[str, Any]) -> bool:
    """Return False for endpoints in the console's own format."""
    return "apiVersion" in document or "kind" in document


def read(document: Mapping[str, Any], own_image: str = "") -> Manifest:
    errors = list(_kind(document))
    errors += placeholders(
        {key: value for key, value in document.items() if key not in ("spec", "status")}, ""
    )
    if errors:
        raise SpecErrors(errors)
    document = {
        key: without_nulls(value) if key in ("metadata", "spec") else value
        for key, value in document.items()
        if value is not None
    }
    kind, version = document["kind"], document["apiVersion"].rpartition("/")[2]
    errors = [
        *_unknown_parts(document),
        *_metadata(document.get("metadata")),
        *_name_errors(document),
    ]
    spec = document.get("spec")
    if spec is None:
        errors.append(schema_error("spec", None, "Missing value.", "Add it.", "required"))
    else:
        errors += placeholders(spec, "spec")
        fields = {error.field for error in errors}
        schema = schemas.relaxed_spec(kind, version)
        errors += [error for error in check(spec, schema, "spec") if error.field not in fields]
    if errors:
        raise SpecErrors(errors)
    metadata = document["metadata"]
    return Manifest(
        kind=kind,
        version=version,
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        annotations=metadata.get("annotations") or {},
        spec=document["spec"],
        whole=clean(document) | {"apiVersion": f"{schemas.GROUP}/{version}"},
        own_image=own_image,
    )


def clean(document: Mapping[str, Any]) -> dict[str, Any]:
    whole = {key: value for key, value in document.items() if key != "status"}
    metadata = {
        key: value for key, value in document["metadata"].items() if key not in SERVER_FIELDS
    }
    finalizers = [
        finalizer for finalizer in metadata.get("finalizers") or [] if finalizer != FINALIZER
    ]
    if "finalizers" in metadata and finalizers != metadata["finalizers"]:
        metadata["finalizers"] = finalizers
        if not finalizers:
            del metadata["finalizers"]
    annotations = metadata.get("annotations")
    if annotations and LAST_APPLIED in annotations:
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != LAST_APPLIED}
        if not metadata["annotations"]:
            del metadata["annotations"]
    return whole | {"metadata": metadata}


def without_nulls(value: Any) -> Any:
    """Return the value without fields that are null, which Kubernetes treats as absent."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def placeholders(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from placeholders(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from placeholders(item, f"{path}[{index}]")
    elif isinstance(value, str):
        variable = _VARIABLE.search(value)
        if variable is not None:
            name = variable[0][2:].rstrip("}")
            message = f"The shell variable {variable[0]} is not set in a manifest."
            remedy = (
                f"Replace it, or set {re.split('[^A-Za-z0-9_]', name)[0]} and pipe the file "
                "through envsubst: envsubst < FILE | emberline endpoint apply -f -"
            )
            yield schema_error(path, variable[0], message, remedy, "placeholder")
        template = _TEMPLATE.search(value)
        if template is not None:
            message = f"{template[0]} is an expression of a Helm template."
            remedy = "Render it: helm template CHART | emberline endpoint apply -f -"
            yield schema_error(path, template[0], message, remedy, "placeholder")
        pattern = _CLEAR_PLACEHOLDER if _FREE_TEXT.search(path) else _PLACEHOLDER
        if pattern.search(value):
            remedy = "Replace it with your value."
            yield schema_error(
                path, value, "The value is a placeholder from a sample.", remedy, "placeholder"
            )


def _kind(document: Mapping[str, Any]) -> Iterator[Problem]:
    kind, api = document.get("kind"), document.get("apiVersion")
    if kind not in schemas.KINDS:
        remedy = f"Send one of: {', '.join(schemas.KINDS)}."
        yield schema_error("kind", kind, "Unsupported kind.", remedy, "invalid_choice")
        return
    group, _, version = str(api).rpartition("/")
    if group in schemas.OTHER_GROUPS:
        group = schemas.GROUP
    if group != schemas.GROUP or not schemas.is_known(kind, version):
        remedy = f"Write {schemas.GROUP}/v1."
        yield schema_error("apiVersion", api, "Unsupported API version.", remedy, "invalid_choice")


def _unknown_parts(document: Mapping[str, Any]) -> Iterator[Problem]:
    lost = list(misplaced(document, document["kind"], document["apiVersion"].rpartition("/")[2]))
    if lost:
        yield from lost
        return
    for key in document:
        if key not in ("apiVersion", "kind", "metadata", "spec", "status"):
            remedy = "An object has apiVersion, kind, metadata and spec."
            yield schema_error(key, document[key], "Unknown field.", remedy, "unknown_field")


def _name_errors(document: Mapping[str, Any]) -> Iterator[Problem]:
    metadata, spec = document.get("metadata"), document.get("spec")
    if not isinstance(metadata, dict):
        return
    named = metadata.get("name") or (isinstance(spec, dict) and spec.get("endpointName"))
    if not named:
        remedy = "Give metadata.name."
        yield schema_error("metadata.name", None, "The object has no name.", remedy, "required")


def _metadata(metadata: Any) -> Iterator[Problem]:
    if not isinstance(metadata, dict):
        yield schema_error("metadata", None, "Missing value.", "Give metadata.name.", "required")
        return
    for key, value in metadata.items():
        path = f"metadata.{key}"
        if key in SERVER_FIELDS or key in ("finalizers", "ownerReferences"):
            continue
        if key not in _METADATA:
            remedy = f"Remove it, or use one of: {', '.join(_METADATA)}."
            yield schema_error(path, value, "Unknown field.", remedy, "unknown_field")
        elif key in ("annotations", "labels"):
            yield from _texts(value, path)
        elif not isinstance(value, str) or not _schema_errors(key, value):
            remedy = "Use lower-case letters, digits and dashes."
            yield schema_error(path, value, f"Cannot be a {key}.", remedy, "invalid_name")


def _schema_errors(key: str, value: str) -> bool:
    if key == "namespace":
        return len(value) <= 63 and bool(_NAMESPACE.fullmatch(value))
    return len(value) <= 253 and bool(_NAME.fullmatch(value))


def _texts(value: Any, path: str) -> Iterator[Problem]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield schema_error(
            path, value, "Not an object.", "Use a mapping of names to strings.", "type"
        )
        return
    for key, item in value.items():
        if not isinstance(item, str):
            remedy = "Put it in quotes."
            yield schema_error(f"{path}[{key}]", item, "Not a string.", remedy, "type")


class NoteMark(StrEnum):
    """Mark of a note about a manifest. `KEPT`: stored in the manifest, without effect."""

    WARNING = "warning"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Note:
    path: str
    code: str
    message: str
    remedy: str = ""
    mark: NoteMark = NoteMark.WARNING
