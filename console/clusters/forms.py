"""Form of a cluster; `actions` validates. A kubeconfig is never rendered into a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from console.clusters.choices import Reach
from console.clusters.models import Cluster
from console.provisioners.kubernetes.api.access import CONTEXT, IN_CLUSTER, KUBECONFIG
from console.provisioners.kubernetes.api.kubeconfig import MAX_BYTES
from console.web.forms import PLAIN_INPUT, ActionForm, HiddenTextarea

_KINDS = (
    (KUBECONFIG, "a kubeconfig, stored encrypted"),
    (CONTEXT, "a context of the kubeconfig on the console host"),
    (IN_CLUSTER, "the console's own cluster, by its service account"),
)
_REACHES = (
    (Reach.PODS, "pods and API server (console in the cluster or a routed network)"),
    (Reach.API, "API server only"),
)


class ClusterForm(ActionForm):
    """Form of a cluster; `cluster` is the one to change, None adds name and kind fields."""

    name = forms.CharField(
        label="Name",
        required=False,
        help_text="Referenced by endpoints under placement. Cannot be changed.",
        widget=forms.TextInput(attrs={**PLAIN_INPUT, "required": True}),
    )
    kind = forms.ChoiceField(label="Connection method", choices=_KINDS, required=False)
    kubeconfig = forms.CharField(
        label="Kubeconfig",
        required=False,
        help_text="Paste the output of: kubectl config view --minify --flatten",
        widget=HiddenTextarea(attrs={**PLAIN_INPUT, "rows": 7, "class": "font-monospace"}),
    )
    file = forms.FileField(label="Kubeconfig file", required=False)
    context = forms.CharField(
        label="Context",
        required=False,
        help_text="Leave empty for the current context.",
        widget=forms.TextInput(attrs=PLAIN_INPUT),
    )
    namespace = forms.CharField(
        label="Namespace",
        required=False,
        help_text="Default namespace for endpoints that name none. Leave empty for the "
        "context's namespace.",
        widget=forms.TextInput(attrs=PLAIN_INPUT),
    )
    reach = forms.ChoiceField(label="Network reach", choices=_REACHES, required=False)

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        files: Any = None,
        *,
        cluster: Cluster | None = None,
    ) -> None:
        self.cluster = cluster
        initial: dict[str, Any] = {}
        if cluster is not None:
            initial = {"namespace": cluster.namespace, "reach": cluster.reach}
            initial["context"] = cluster.context if cluster.kind == CONTEXT else ""
        super().__init__(data, files, initial=initial)
        for name in self._fixed_fields():
            del self.fields[name]
        if cluster is not None and "kubeconfig" in self.fields:
            self.fields["kubeconfig"].help_text = "Leave empty to keep the current one."

    def _fixed_fields(self) -> tuple[str, ...]:
        if self.cluster is None:
            return ()
        fixed = ("name", "kind")
        if self.cluster.kind == KUBECONFIG:
            return fixed
        rest = (*fixed, "kubeconfig", "file")
        return rest if self.cluster.kind == CONTEXT else (*rest, "context")

    def typed(self) -> dict[str, Any]:
        """Return the input of `actions`; an uploaded file replaces the pasted text."""
        values = {
            name: str(self.data.get(name, "")).strip()
            for name in self.fields
            if name not in ("name", "file")
        }
        if "file" in self.fields and not values.get("kubeconfig"):
            values["kubeconfig"] = self._uploaded()
        if self.cluster is None or self.cluster.kind == CONTEXT:
            return {key: value for key, value in values.items() if value or key == "context"}
        return {key: value for key, value in values.items() if value}

    def _uploaded(self) -> str:
        """Read at most one byte over the limit, for `actions` to reject."""
        file = self.files.get("file")
        if file is None:
            return ""
        content: bytes = file.read(MAX_BYTES + 1)
        return content.decode("utf-8", "replace")
