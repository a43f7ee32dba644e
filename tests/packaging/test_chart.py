"""Chart: kept rendering, security, selectors and rights.

The rendered objects lie in golden/, so everything but the rendering is checked without a Helm.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from console.core.environment import load
from console.launcher.processes import STORE_RIGHTS, STORE_USER
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.discovery import rights
from dashboards.alerts.rules import rule_file as alerts_rules
from dashboards.prometheus.config import recording_rules
from deploy.helm import chart_files
from tests.packaging import chart
from tests.packaging.chart import CASES, Object

VALUES = yaml.load((chart.CHART / "values.yaml").read_text(), Loader=yaml.CSafeLoader)
SCHEMA = json.loads((chart.CHART / "values.schema.json").read_text())
CLOSED = (*CASES["bundled"], "--set", "networkPolicy.egress.enabled=true")
OURS = ("web", "worker", "beat", "migrate")


@pytest.fixture(params=sorted(CASES))
def rendered(request: pytest.FixtureRequest) -> list[Object]:
    return chart.golden(request.param)


def pods(found: list[Object]) -> Iterator[tuple[str, Object]]:
    for one in found:
        spec = chart.pod_of(one)
        if spec is not None:
            yield f"{one['kind']}/{one['metadata']['name']}", spec


def containers(found: list[Object]) -> Iterator[tuple[str, Object]]:
    for name, pod in pods(found):
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            yield f"{name}/{container['name']}", container


def named(found: list[Object], kind: str, name: str) -> Object:
    return next(o for o in found if o["kind"] == kind and o["metadata"]["name"] == name)


def test_kept_rendering_is_of_the_current_templates() -> None:
    """Also without Helm: after a change of templates the recorded output must be rendered again."""
    path = chart.GOLDEN / "sources.txt"
    if chart.UPDATE and chart.HELM is not None:
        path.write_text(f"{chart.sources()}\n")
    assert path.read_text() == f"{chart.sources()}\n", "UPDATE_GOLDEN=1 HELM=... renders anew"


@chart.needs_helm
@pytest.mark.parametrize("case", sorted(CASES))
def test_kept_rendering_equals_the_chart_output(case: str) -> None:
    text = chart.template(*CASES[case])
    path = chart.GOLDEN / f"{case}.yaml"
    if chart.UPDATE:
        path.write_text(text)
    assert path.read_text() == text, f"UPDATE_GOLDEN=1 writes {path.name} anew"


@chart.needs_helm
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "database.url, database.urlSecret.name or postgresql.enabled is needed"),
        (("--set", "postgresql.enabled=true"), "redis.url, redis.urlSecret.name or valkey"),
        (("--set", "web.replics=2"), "replics"),
        (("--set", "database.url=postgres://u:secret@h/d"), "/database/url"),
        (("--set", "redis.url=redis://:secret@h/0"), "/redis/url"),
        (("--set", "worker.replicas=0"), "/worker/replicas"),
        (
            (*CASES["bundled"], "--set", "ingress.enabled=true", "--set", "web.host="),
            "web.host is needed",
        ),
        ((*CASES["bundled"], "--set", "gateway.enabled=true"), "gateway.parentRefs is needed"),
        ((*CLOSED, "--set", "prometheusUrl=http://p"), "networkPolicy.egress.metrics is needed"),
        ((*CLOSED, "--set", "alertmanagerUrl=http://a"), "networkPolicy.egress.metrics is needed"),
        ((*CLOSED, "--set", "mail.host=m,mail.from=a@b"), "egress.receivers is needed"),
        ((*CLOSED, "--set", "signOn.oidcSecret.name=s"), "networkPolicy.egress.other is needed"),
        ((*CASES["bundled"], "--set", "mail.host=smtp.example.com"), "mail.from is needed"),
    ],
)
def test_invalid_values_are_rejected_before_rendering(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(message)):
        chart.template(*words)


@chart.needs_helm
def test_missing_keys_are_generated() -> None:
    words = ("--set", "postgresql.enabled=true", "--set", "valkey.enabled=true")
    made = chart.objects(chart.template(*words))
    (secret,) = (o for o in made if o["kind"] == "Secret")
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    again = next(o for o in chart.objects(chart.template(*words)) if o["kind"] == "Secret")
    for name in ("django-secret-key", "encryption-key", "l2-password", "targets-token"):
        assert len(secret["data"][name]) > 40
        assert secret["data"][name] != again["data"][name]


def test_bundled_valkey_can_be_the_state_store_with_a_user_of_its_own() -> None:
    made = {(one["kind"], one["metadata"]["name"]): one for one in chart.golden("bundled")}
    pod = chart.pod_of(made["Deployment", "emberline-valkey"])
    assert pod is not None
    script = pod["containers"][0]["command"][-1]
    assert f'user {STORE_USER} on ">%s" {STORE_RIGHTS}\\n' in script
    settings = made["ConfigMap", "emberline"]["data"]
    # Routers may be in another namespace than the store.
    assert settings["EMBERLINE_STATE_STORE_URL"] == "redis://emberline-valkey.emberline.svc:6379/0"
    assert settings["EMBERLINE_STATE_STORE_USER"] == STORE_USER
    (rule,) = made["NetworkPolicy", "emberline-valkey"]["spec"]["ingress"]
    labels = [one["podSelector"]["matchLabels"] for one in rule["from"]]
    component = "app.kubernetes.io/component"
    assert [one[component] for one in labels] == ["console", "router"]


@chart.needs_helm
def test_bundled_state_store_needs_the_bundled_valkey() -> None:
    own = (*CASES["own-database"], "--set", "stateStore.bundled=true")
    with pytest.raises(RuntimeError, match=r"stateStore\.bundled needs valkey\.enabled"):
        chart.template(*own)
    both = (*CASES["bundled"], "--set", "stateStore.url=redis://a:6379")
    with pytest.raises(RuntimeError, match="exclude each other"):
        chart.template(*both)


def test_values_match_their_closed_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    for case in CASES:
        given = yaml.load(
            (chart.GOLDEN / f"{case}.values.yaml").read_text(), Loader=yaml.CSafeLoader
        )
        jsonschema.validate(given, SCHEMA)

    def same(schema: Any, value: Any, where: str) -> None:
        if "properties" not in schema:
            return
        assert schema["additionalProperties"] is False, where
        assert set(schema["properties"]) - {"global", "claims"} >= set(value), where
        for name in set(schema["properties"]) & set(value):
            same(schema["properties"][name], value[name], f"{where}.{name}")

    same(SCHEMA, VALUES, "values")


def test_every_pod_is_restricted(rendered: list[Object]) -> None:
    for name, pod in pods(rendered):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["enableServiceLinks"] is False, name  # or Services become settings of ours
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), name
        assert not [v for v in pod["volumes"] if "hostPath" in v], name
    for name, container in containers(rendered):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert container["resources"]["requests"]["cpu"], name
        assert container["resources"]["limits"]["memory"], name


# Lists that a Kubernetes API server merges by these fields, and refuses with an entry twice (422).
LIST_KEYS = {
    "groups": ("name",),
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "env": ("name",),
    "ports": ("name",),
    "imagePullSecrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}


def repeated(value: Any, path: str = "") -> list[str]:
    """Entries of keyed lists that occur twice, by path."""
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in repeated(item, f"{path}.{key}")]
    if not isinstance(value, list):
        return []
    keys = LIST_KEYS.get(path.rpartition(".")[2], ())
    names = [tuple(item.get(key) for key in keys) for item in value if isinstance(item, dict)]
    twice = [f"{path}: {name}" for name in set(names) if any(name) and names.count(name) > 1]
    return twice + [
        text for index, item in enumerate(value) for text in repeated(item, f"{path}[{index}]")
    ]


def test_no_entry_of_a_keyed_list_is_repeated(rendered: list[Object]) -> None:
    kustomize = [
        item
        for path in (chart.ROOT / "deploy/kustomize").rglob("*.yaml")
        for item in chart.objects(path.read_text())
    ]
    names = [
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in rendered
    ]
    assert len(names) == len(set(names))
    for item in [*rendered, *kustomize]:
        assert repeated(item) == [], item.get("kind")


def test_only_cluster_clients_have_a_token(rendered: list[Object]) -> None:
    for name, pod in pods(rendered):
        speaks = name.endswith(("-web", "-worker"))
        assert ("serviceAccountName" in pod) is speaks, name
        assert pod.get("automountServiceAccountToken", True) is speaks, name


def test_no_secret_is_in_a_setting_or_command(rendered: list[Object]) -> None:
    for one in rendered:
        if one["kind"] == "ConfigMap":
            for key, value in one["data"].items():
                assert not re.search(r"://[^/@]*:[^/@]+@", value), key
    for name, container in containers(rendered):
        for setting in container.get("env", ()):
            assert "secretKeyRef" not in str(setting), name
        words = " ".join([*container.get("command", ()), *container.get("args", ())])
        assert "requirepass $" not in words, name


def test_chart_settings_are_console_settings(rendered: list[Object], tmp_path: Any) -> None:
    """A misspelt name would be silently without effect."""
    (settings,) = (o for o in rendered if "EMBERLINE_HOST" in o.get("data", {}))
    read = "".join(
        (chart.ROOT / path).read_text()
        for path in (
            *("console/core/environment.py", "console/settings.py", "console/programs.py"),
            *("console/core/mail.py", "console/core/state_store.py"),
            "console/provisioners/kubernetes/api/access.py",
            "console/signon/core/configuration.py",
        )
    )
    for name in settings["data"]:
        known = name.removesuffix("_FILE")
        assert f'"{known}"' in read or f'"{name}"' in read or name == "FORWARDED_ALLOW_IPS", name
    plain = {k: v for k, v in settings["data"].items() if not k.endswith("_FILE")}
    facts = load({"REDIS_URL": "redis://h/0", **plain, "EMBERLINE_VAR": str(tmp_path)}, chart.ROOT)
    assert (facts.provisioner, facts.admin, facts.log_format) == (
        *("kubernetes", "0.0.0.0:9100", "json"),
    )
    assert facts.worker_image
    assert facts.engine_image


def test_named_files_are_mounted(rendered: list[Object]) -> None:
    (settings,) = (o for o in rendered if "EMBERLINE_HOST" in o.get("data", {}))
    wanted = {v for k, v in settings["data"].items() if k.endswith("_FILE")}
    for name, pod in pods(rendered):
        if not name.partition("-")[2].startswith(OURS):
            continue
        keys = {
            v["name"]: {item["path"] for item in v["secret"].get("items", ())}
            for v in pod["volumes"]
            if "secret" in v
        }
        there = {
            f"{mount['mountPath']}/{path}"
            for mount in pod["containers"][0]["volumeMounts"]
            for path in keys.get(mount["name"], ())
        }
        # Mounted without a list of keys: whatever that Secret or ConfigMap of one's own holds.
        held = {v["name"]: v.get("secret") or v.get("configMap") for v in pod["volumes"]}
        whole = {name for name, of in held.items() if of is not None and "items" not in of}
        mounts = pod["containers"][0]["volumeMounts"]
        any_of = tuple(f"{one['mountPath']}/" for one in mounts if one["name"] in whole)
        assert {one for one in wanted if not one.startswith(any_of)} <= there, name


def test_upgrade_interrupts_no_request(rendered: list[Object]) -> None:
    for program in ("web", "worker"):
        found = named(rendered, "Deployment", f"emberline-{program}")
        assert found["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        pod = chart.pod_of(found)
        assert pod is not None
        assert "emberline_migrate --check" in pod["initContainers"][0]["command"][2]
    web = chart.pod_of(named(rendered, "Deployment", "emberline-web"))
    assert web is not None
    drain = web["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert web["terminationGracePeriodSeconds"] >= drain + 5 + 5
    probes = web["containers"][0]
    assert probes["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert probes["readinessProbe"]["httpGet"]["path"] == "/healthz"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        # The kubelet connects by address, which is not an allowed host name.
        (header,) = probes[probe]["httpGet"]["httpHeaders"]
        assert header == {"name": "Host", "value": "localhost"}
    # An image that cannot be pulled must not leave the installation without its clock.
    beat = named(rendered, "Deployment", "emberline-beat")["spec"]
    assert beat["replicas"] == 1
    assert beat["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_services_and_policies_select_their_pods(rendered: list[Object]) -> None:
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in rendered
        if chart.pod_of(one) is not None
    }

    def chosen(selector: dict[str, str]) -> set[str]:
        return {name for name, have in labels.items() if selector.items() <= have.items()}

    for one in rendered:
        name, spec = one["metadata"]["name"], one.get("spec", {})
        if one["kind"] in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
            assert chosen(spec["selector"]["matchLabels"]) == {name}
        elif one["kind"] == "Service":
            expected = "emberline-web" if name == "emberline" else name
            assert chosen(spec["selector"]) == {expected}
        elif one["kind"] == "NetworkPolicy" and name != "emberline" and "-egress" not in name:
            assert chosen(spec["podSelector"]["matchLabels"]) == {name}
    ours = named(rendered, "NetworkPolicy", "emberline")["spec"]["podSelector"]["matchLabels"]
    # With the Job, without the bundled database and broker.
    assert len(chosen(ours)) == 4 + ("emberline-alertmanager" in labels)
    for program in ("web", "worker"):  # workloads let the console in by these
        assert labels[f"emberline-{program}"].items() >= {
            ("app.kubernetes.io/name", "emberline"),
            ("app.kubernetes.io/component", "console"),
        }


def test_each_program_connects_only_to_its_dependencies() -> None:
    found = chart.golden("everything")
    labels = {
        pod["emberline.dev/program"]: pod
        for one in found
        if chart.pod_of(one) is not None
        and "emberline.dev/program" in (pod := one["spec"]["template"]["metadata"]["labels"])
    }
    policies = [o for o in found if o["kind"] == "NetworkPolicy" and "-egress" in str(o)]
    open_to: dict[str, set[int | str]] = {program: set() for program in labels}
    for policy in policies:
        assert policy["spec"]["policyTypes"] == ["Egress"]
        assert {} not in policy["spec"]["egress"], "a rule without a word is everything"
        for program, have in labels.items():
            if chosen_by(policy["spec"]["podSelector"], have):
                for rule in policy["spec"]["egress"]:
                    ports = [one["port"] for one in rule.get("ports", ())]
                    open_to[program].update(ports or ["workloads"])
                    assert ports or "namespaceSelector" in rule["to"][0]
    base: set[int | str] = {53, 5432, 6379}
    assert open_to["beat"] == open_to["migrate"] == base
    assert open_to["web"] == open_to["worker"] == base | {443, 465, 6443, 9090, 9093, "workloads"}


def chosen_by(selector: Object, have: dict[str, str]) -> bool:
    rules = selector.get("matchExpressions", ())
    assert all(one["operator"] == "In" for one in rules)
    return selector["matchLabels"].items() <= have.items() and all(
        have.get(one["key"]) in one["values"] for one in rules
    )


def test_rights_equal_those_of_the_console() -> None:
    path = chart.CHART / "files" / "rights.yaml"
    if chart.UPDATE:
        path.write_text(chart.rights_file())
    assert path.read_text() == chart.rights_file(), "UPDATE_GOLDEN=1 writes it anew"


def test_chart_gets_the_rules_of_the_console() -> None:
    made = chart_files.render()
    assert set(chart.STAND_INS) < set(made), "templates include these"
    ours = yaml.load((chart.CHART / "files/alerts.yaml").read_text(), Loader=yaml.CSafeLoader)
    alerts, recording = (
        yaml.load(made[f"files/{name}.yaml"], Loader=yaml.CSafeLoader)
        for name in ("endpoint-alerts", "recording")
    )
    assert alerts == yaml.load(alerts_rules.render(), Loader=yaml.CSafeLoader)["groups"]
    assert recording == recording_rules.all_groups()
    # The API server refuses a group of the same name.
    names = [group["name"] for group in (*ours, *alerts, *recording)]
    assert len(names) == len(set(names))
    included = re.findall(r'Files.Get "(files/[^"]+)"', template_text("monitoring"))
    assert {name for name in included if name in made} == {
        "files/endpoint-alerts.yaml",
        "files/recording.yaml",
    }


def template_text(name: str) -> str:
    return (chart.CHART / f"templates/{name}.yaml").read_text()


@chart.needs_helm
def test_chart_without_its_derived_files_is_refused(tmp_path: Path) -> None:
    for switch in ("monitoring.rules", "monitoring.dashboards"):
        folder = tmp_path / switch
        shutil.copytree(chart.CHART, folder)
        chart_files.write(folder, {})
        for name in ("endpoint-alerts", "recording"):
            (folder / f"files/{name}.yaml").unlink(missing_ok=True)
        words = [chart.HELM or "", "template", "x", str(folder), *CASES["own-database"]]
        done = subprocess.run([*words, "--set", f"{switch}=true"], capture_output=True, text=True)
        assert "run `make chart` first" in done.stderr


@pytest.mark.parametrize("case", sorted(CASES))
def test_kept_roles_equal_the_rights(case: str) -> None:
    path = chart.GOLDEN / f"{case}.yaml"
    text = chart.with_rights(path.read_text(), volumes=case == "everything")
    if chart.UPDATE:
        path.write_text(text)
    assert path.read_text() == text, "UPDATE_GOLDEN=1 writes it anew"


def granted(found: list[Object], kind: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for one in found
        if one["kind"] == kind
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def list_rights(*, cluster: bool) -> set[tuple[str, str, str]]:
    return {
        (one.group, one.resource, verb)
        for one in rights.RIGHTS
        if one.cluster is cluster
        for verb in one.verbs
    }


def test_role_grants_exactly_the_required_rights() -> None:
    everything = chart.golden("everything")
    assert granted(everything, "Role") == list_rights(cluster=False)
    assert granted(everything, "ClusterRole") == list_rights(cluster=True)
    # Without volumes of the whole cluster, nothing cluster-wide can be written.
    less = granted(chart.golden("own-database"), "ClusterRole")
    assert {verb for _, _, verb in less} == {"list"}
    assert not granted(chart.golden("bundled"), "ClusterRole")
    applied = {(kind.group, kind.plural) for kind in kinds.APPLIED_KINDS}
    followed = {(one.group, one.resource) for one in rights.RIGHTS if one.part}
    for verb in ("create", "patch", "delete"):
        writes = {(g, r) for g, r, v in granted(everything, "Role") if v == verb}
        assert writes <= applied | {("", "pods")} | followed, verb
    assert not {"*"} & {part for right in granted(everything, "Role") for part in right}


def test_receiver_rights_are_granted_only_with_their_value_and_namespace() -> None:
    own = [
        one
        for one in chart.golden("everything")
        if one["metadata"]["name"].endswith("-receivers") and one["kind"] == "Role"
    ]
    assert [one["metadata"]["namespace"] for one in own] == ["models"]
    (rule,) = own[0]["rules"]
    assert rule["resources"] == ["alertmanagerconfigs"]
    others = [case for case in sorted(chart.CASES) if case != "everything"]
    assert others
    for case in others:
        given = {resource for _, resource, _ in granted(chart.golden(case), "Role")}
        assert "alertmanagerconfigs" not in given, case


@chart.needs_helm
def test_console_managed_rules_are_not_in_the_chart() -> None:
    words = ("--set", "monitoring.rules=true", "--set", "monitoring.liveRules=true")
    labelled = ("--set", "monitoring.labels.release=prometheus")
    base = ("-f", str(chart.GOLDEN / "bundled.values.yaml"))
    found = chart.objects(chart.template(*base, *words, *labelled))
    (rule,) = (one for one in found if one["kind"] == "PrometheusRule")
    groups = {group["name"] for group in rule["spec"]["groups"]}
    assert not groups & set(alerts_rules.GROUPS)
    assert groups
    maps = [one["data"] for one in found if one["kind"] == "ConfigMap"]
    (settings,) = (data for data in maps if "EMBERLINE_ALERT_OBJECTS" in data)
    assert settings["EMBERLINE_ALERT_OBJECTS"] == "rules"
    assert settings["EMBERLINE_ALERT_OBJECT_LABELS"] == "release=prometheus"


def test_following_rights_are_granted_only_where_used() -> None:
    """In Roles of its own, so that who installs without Helm can leave them out, too."""
    group = {
        (one.group, one.resource, verb)
        for one in rights.RIGHTS
        if one.part == rights.FOLLOW_GROUP
        for verb in one.verbs
    }
    everything = chart.golden("everything")
    own = [one for one in everything if one["metadata"]["name"].endswith("-follow")]
    assert granted(own, "Role") | granted(own, "ClusterRole") == group
    others = [one for one in everything if one not in own]
    events = {("", "events", "list")}
    assert not (granted(others, "Role") | granted(others, "ClusterRole")) & group - events
    for one in own:
        for rule in one.get("rules", ()):
            if "customresourcedefinitions" in rule["resources"] and rule["verbs"] != ["create"]:
                assert rule["resourceNames"] == [
                    "inferenceendpointconfigs.inference.sagemaker.aws.amazon.com"
                ]
    assert VALUES["follow"] == {"enabled": False}
    for case in ("own-database", "bundled"):
        without = chart.golden(case)
        assert not (granted(without, "Role") | granted(without, "ClusterRole")) & group


def test_role_exists_exactly_in_workload_namespaces() -> None:
    found = chart.golden("everything")
    for kind in ("Role", "RoleBinding"):
        where = {o["metadata"]["namespace"] for o in found if o["kind"] == kind}
        assert where == {"models", "research"}
    (settings,) = (o for o in found if "EMBERLINE_HOST" in o.get("data", {}))
    assert settings["data"]["EMBERLINE_NAMESPACE"] == "models"
    for one in found:
        if one["kind"] == "RoleBinding":
            assert one["subjects"] == [
                {"kind": "ServiceAccount", "name": "emberline", "namespace": "emberline"}
            ]


def test_alerts_use_existing_metrics() -> None:
    (rules,) = (o for o in chart.golden("everything") if o["kind"] == "PrometheusRule")
    known = {"task_runs_total", "http_requests_total", "task_oldest_seconds"}
    known |= {"disk_free_bytes", "disk_size_bytes", "disk_inodes_free_ratio", "disk_read_only"}
    for group in rules["spec"]["groups"]:
        for rule in (one for one in group["rules"] if "alert" in one):
            names = set(re.findall(r"emberline_console_(\w+)", rule["expr"]))
            assert names <= known, rule["alert"]
            assert set(rule["annotations"]) == {"summary", "description"}
