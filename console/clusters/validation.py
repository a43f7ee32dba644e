"""Input of clusters, for forms, REST and command line. Kubeconfigs are write-only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rest_framework import serializers

from console.api.bodies import read_body
from console.clusters.choices import REACHES, Reach
from console.clusters.models import Cluster
from console.core.errors import Problem, Refused
from console.core.outbound import address_problem
from console.provisioners.kubernetes.api import kubeconfig
from console.provisioners.kubernetes.api.access import (
    CONTEXT,
    IN_CLUSTER,
    KINDS,
    KUBECONFIG,
    own_namespace,
)


class ClusterChangeSerializer(serializers.Serializer[Any]):
    """All fields are optional; missing fields keep their values."""

    kubeconfig = serializers.CharField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        write_only=True,
        help_text="Complete kubeconfig; only the chosen context is stored, encrypted.",
    )
    namespace = serializers.RegexField(
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z",
        required=False,
        help_text="Default namespace for endpoints that name none: 1 to 63 lower-case letters, "
        "digits and hyphens.",
    )
    reach = serializers.ChoiceField(
        required=False, choices=REACHES, help_text="Network reach of the console."
    )

    def get_fields(self) -> dict[str, Any]:
        """Add `context`, which cannot be declared: the base class has a property of that name."""
        text = "Context of the kubeconfig or of the console's machine; empty: the current context."
        context = serializers.CharField(required=False, allow_blank=True, help_text=text)
        return {**super().get_fields(), "context": context}


class ClusterAddSerializer(ClusterChangeSerializer):
    name = serializers.RegexField(
        r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?\Z",
        help_text="1 to 40 lower-case letters, digits and hyphens.",
    )
    kind = serializers.ChoiceField(choices=KINDS, help_text="Connection method.")

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if values["name"] == IN_CLUSTER and values["kind"] != IN_CLUSTER:
            text = "This name is reserved for the console's own cluster."
            raise serializers.ValidationError({"name": text}, "reserved")
        return values


def validate_new(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a new cluster."""
    values = read_body(ClusterAddSerializer, data)
    login = _login(values["kind"], values)
    own = login.pop("namespace", "")
    return {
        "name": values["name"],
        "kind": values["kind"],
        **login,
        "namespace": values.get("namespace") or own or "default",
        "reach": values.get("reach", Reach.PODS),
    }


def validate_changes(cluster: Cluster, data: Mapping[str, Any]) -> dict[str, Any]:
    values = read_body(ClusterChangeSerializer, data)
    changes: dict[str, Any] = {
        name: values[name] for name in ("namespace", "reach") if name in values
    }
    if values.get("kubeconfig") or "context" in values:
        login = _login(cluster.kind, values, cluster)
        login.pop("namespace", None)
        changes |= login
    return changes


def _login(kind: str, data: Mapping[str, Any], cluster: Cluster | None = None) -> dict[str, Any]:
    """Return the login fields, with `namespace` if the kubeconfig sets one."""
    text, context = data.get("kubeconfig", ""), data.get("context", "")
    if kind != KUBECONFIG and text:
        remedy = f"Omit it, or choose the kind {KUBECONFIG}."
        raise Refused(
            Problem("kubeconfig", None, f"{kind} has no such context.", remedy, "invalid")
        )
    if kind == IN_CLUSTER:
        if context:
            remedy = "Omit it: the console's service account is used."
            raise Refused(Problem("context", context, "Not allowed.", remedy, "invalid"))
        return {"namespace": own_namespace()}
    if kind == CONTEXT:
        return {"context": context}
    if not text and cluster is not None:
        remedy = "Send the kubeconfig as well: only its chosen context is stored."
        raise Refused(Problem("context", context, "Not allowed.", remedy, "invalid"))
    return _kept(text, context)


def _kept(text: str, context: str) -> dict[str, Any]:
    if not text.strip():
        remedy = "Paste it or choose the file: kubectl config view --minify --flatten prints one."
        raise Refused(Problem("kubeconfig", None, "Required.", remedy, "required"))
    try:
        parsed = kubeconfig.parse_kubeconfig(text)
        chosen = parsed.chosen(context)
        login = parsed.login(chosen)
    except kubeconfig.KubeconfigError as error:
        field = "context" if error.path == "current-context" else "kubeconfig"
        where = f"{error.path}: " if error.path and field == "kubeconfig" else ""
        value = context if field == "context" else None
        raise Refused(
            Problem(field, value, f"{where}{error.message}", error.remedy, "invalid")
        ) from None
    for key, url in (("server", login.server), ("proxy-url", login.proxy)):
        parts = urlsplit(url)
        refused = address_problem(parts.hostname, parts.port or 443) if parts.hostname else ""
        if refused:
            remedy = "Enter the API server address as seen from the console."
            raise Refused(Problem("kubeconfig", None, f"{key}: {refused}", remedy, "forbidden"))
    return {"kubeconfig": parsed.only(chosen), "context": chosen, "namespace": login.namespace}
