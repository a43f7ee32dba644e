"""Export an endpoint as an InferenceEndpointConfig.

An unchanged import is exported unchanged. The result is read back before it is returned; fields
that come out differently are written as annotations.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from endpoints.manifests import extensions, objects, schemas
from endpoints.manifests.importer import flat as read_flat
from endpoints.manifests.spec_blocks import WRITERS, skeleton
from endpoints.spec.endpoint_spec import EndpointSpec, SpecErrors
from endpoints.spec.fields import BY_PATH, FIELDS

Flat = dict[str, Any]
_NOT_IN_IT = frozenset({"manifest", "placement.cluster"})
_DERIVED_FIELDS = {"resources.memory_gib"}
"""Derived from total memory minus L1, so correct once L1 is set."""


def manifest(spec: EndpointSpec, image: str = "") -> dict[str, Any]:
    """Return the object. `image`: the installation's worker image, for workers without one."""
    whole = copy.deepcopy(spec.manifest) if spec.manifest else skeleton(spec, image)
    normalized = _normalize(spec.flat())
    differing = _differing_paths(whole, normalized)
    if not differing:
        return whole
    _remove_annotations(whole, differing)
    if "placement.namespace" in differing:
        _namespace(whole, normalized["placement.namespace"])
    if whole["kind"] == schemas.KIND:
        for paths, write in WRITERS:
            if paths & differing:
                _try_block(whole, write, normalized)
    _annotate(whole, normalized, _differing_paths(whole, normalized) - _DERIVED_FIELDS)
    _annotate(whole, normalized, _differing_paths(whole, normalized))
    return whole


def _annotate(whole: dict[str, Any], wanted: Flat, paths: set[str]) -> None:
    for path in sorted(paths):
        annotations = whole["metadata"].setdefault("annotations", {})
        annotations[extensions.key_of(path)] = extensions.text_of(path, wanted[path])


def _namespace(whole: dict[str, Any], namespace: str) -> None:
    whole["metadata"].pop("namespace", None)
    if namespace:
        whole["metadata"]["namespace"] = namespace


def _try_block(whole: dict[str, Any], write: Any, wanted: Flat) -> None:
    """Write a block; keep the previous one if the schema rejects the result (an annotation holds
    the value).
    """
    before = copy.deepcopy(whole["spec"])
    write(whole["spec"], wanted)
    try:
        objects.read(whole)
    except SpecErrors:
        whole["spec"] = before


def _remove_annotations(whole: dict[str, Any], paths: set[str]) -> None:
    annotations = whole["metadata"].get("annotations")
    if annotations:
        for path in paths:
            annotations.pop(extensions.key_of(path), None)
        if not annotations:
            del whole["metadata"]["annotations"]


def _differing_paths(whole: Mapping[str, Any], wanted: Flat) -> set[str]:
    defaults = {field.path: field.default for field in FIELDS}
    normalized = _normalize(defaults | read_flat(objects.read(whole)))
    return {path for path in wanted if normalized[path] != wanted[path]}


def _normalize(values: Mapping[str, Any]) -> Flat:
    """Normalise values to a spec's types: tuples to lists, whole numbers to floats."""
    flat = {}
    for path, value in values.items():
        if path in _NOT_IN_IT:
            continue
        kind = BY_PATH[path].kind
        flat[path] = list(value) if kind is tuple else float(value) if kind is float else value
    return flat
