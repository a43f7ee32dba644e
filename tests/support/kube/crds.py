"""Custom resource definitions of optional cluster components.

KEDA, cert-manager, Gateway API and the Prometheus operator: reduced to the fields used here,
structural and typed, so that strict validation rejects misspelt or mistyped fields. There are no
controllers: tests write statuses.
"""

from __future__ import annotations

from typing import Any

from tests.support.kube.client import Kube
from tests.support.waiting import until

Schema = dict[str, Any]

STR: Schema = {"type": "string"}
INT: Schema = {"type": "integer"}
BOOL: Schema = {"type": "boolean"}
ANY: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
INT_OR_STR: Schema = {"anyOf": [INT, STR], "x-kubernetes-int-or-string": True}
MAP: Schema = {"type": "object", "additionalProperties": STR}
DURATION: Schema = {"type": "string", "pattern": r"^(0|([0-9]+(ms|[smhdwy]))+)$"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
REPLICAS: Schema = {"type": "integer", "format": "int32", "minimum": 0}


def obj(*required: str, **fields: Schema) -> Schema:
    """Trailing underscores avoid Python keywords (`for_`, `from_`)."""
    named = {name.rstrip("_"): schema for name, schema in fields.items()}
    schema: Schema = {"type": "object", "properties": named}
    return schema | {"required": list(required)} if required else schema


def array(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, **({"minItems": least} if least else {})}


def enum(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


CONDITION = obj(
    "type",
    "status",
    type=STR,
    status=STR,
    reason=STR,
    message=STR,
    lastTransitionTime=STR,
    observedGeneration=INT,
)
STATUS = {**obj(conditions=array(CONDITION)), "x-kubernetes-preserve-unknown-fields": True}
EXPRESSION = obj("key", "operator", key=STR, operator=STR, values=array(STR))
SELECTOR = obj(matchLabels=MAP, matchExpressions=array(EXPRESSION))
SECRET_KEY = obj("key", name=STR, key=STR, optional=BOOL)

_POLICY = obj("type", "value", "periodSeconds", type=STR, value=INT, periodSeconds=INT)
_SCALING = obj(
    stabilizationWindowSeconds=REPLICAS,
    selectPolicy=STR,
    policies=array(_POLICY),
    tolerance=INT_OR_STR,
)
_TRIGGER = obj(
    "type",
    "metadata",
    type=STR,
    name=STR,
    metadata=MAP,
    useCachedMetrics=BOOL,
    metricType=enum("AverageValue", "Value", "Utilization"),
    authenticationRef=obj("name", name=STR, kind=STR),
)
SCALED_OBJECT = obj(
    "scaleTargetRef", "triggers",
    scaleTargetRef=obj("name", apiVersion=STR, kind=STR, name=STR, envSourceContainerName=STR),
    pollingInterval=REPLICAS, cooldownPeriod=REPLICAS, initialCooldownPeriod=REPLICAS,
    idleReplicaCount=REPLICAS, minReplicaCount=REPLICAS, maxReplicaCount=REPLICAS,
    advanced=obj(
        restoreToOriginalReplicaCount=BOOL,
        horizontalPodAutoscalerConfig=obj(
            name=STR, behavior=obj(scaleUp=_SCALING, scaleDown=_SCALING)
        ),
        scalingModifiers=obj(formula=STR, target=STR, activationTarget=STR, metricType=STR),
    ),
    fallback=obj(
        "failureThreshold", "replicas", failureThreshold=INT, replicas=INT, behavior=STR
    ),
    triggers=array(_TRIGGER, 1),
)  # fmt: skip
TRIGGER_AUTHENTICATION = obj(
    secretTargetRef=array(obj("parameter", "name", "key", parameter=STR, name=STR, key=STR)),
    env=array(obj("parameter", "name", parameter=STR, name=STR, containerName=STR)),
    podIdentity=obj(
        "provider", provider=STR, identityId=STR, roleArn=STR, identityOwner=STR
    ),
)  # fmt: skip
_ISSUER_REF = obj("name", name=STR, kind=STR, group=STR)
CERTIFICATE = obj(
    "secretName", "issuerRef", secretName=STR, issuerRef=_ISSUER_REF, dnsNames=array(STR),
    commonName=STR, duration=STR, renewBefore=STR, usages=array(STR), ipAddresses=array(STR),
    uris=array(STR), isCA=BOOL, revisionHistoryLimit=INT,
    privateKey=obj(
        algorithm=enum("RSA", "ECDSA", "Ed25519"), size=INT, encoding=enum("PKCS1", "PKCS8"),
        rotationPolicy=enum("Never", "Always"),
    ),
    secretTemplate=obj(annotations=MAP, labels=MAP), subject=ANY,
)  # fmt: skip
ISSUER = obj(selfSigned=obj(crlDistributionPoints=array(STR)), ca=obj("secretName", secretName=STR),
             acme=ANY, vault=ANY)  # fmt: skip

_BACKEND = obj("name", group=STR, kind=STR, name=STR, namespace=STR, port=PORT, weight=INT,
               filters=array(ANY))  # fmt: skip
_HEADERS = array(obj("name", "value", name=STR, value=STR))
_HEADER_EDIT = obj(set=_HEADERS, add=_HEADERS, remove=array(STR))
_MATCHES = array(obj("name", "value", type=enum("Exact", "RegularExpression"), name=STR, value=STR))
_MATCH = obj(
    path=obj(type=enum("Exact", "PathPrefix", "RegularExpression"), value=STR),
    headers=_MATCHES, queryParams=_MATCHES,
    method=enum("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"),
)  # fmt: skip
_FILTER = obj(
    "type", type=STR, requestHeaderModifier=_HEADER_EDIT, responseHeaderModifier=_HEADER_EDIT,
    requestRedirect=ANY, urlRewrite=ANY, requestMirror=ANY, extensionRef=ANY,
)  # fmt: skip
HTTP_ROUTE = obj(
    parentRefs=array(
        obj("name", group=STR, kind=STR, namespace=STR, name=STR, sectionName=STR, port=PORT)
    ),
    hostnames=array({"type": "string", "minLength": 1, "maxLength": 253}),
    rules=array(
        obj(
            name=STR, matches=array(_MATCH), filters=array(_FILTER), backendRefs=array(_BACKEND),
            timeouts=obj(request=DURATION, backendRequest=DURATION),
        )
    ),
)  # fmt: skip
_LISTENER = obj(
    "name", "port", "protocol", name=STR, hostname=STR, port=PORT, protocol=STR,
    tls=obj(
        mode=enum("Terminate", "Passthrough"), options=MAP,
        certificateRefs=array(obj("name", group=STR, kind=STR, name=STR, namespace=STR)),
    ),
    allowedRoutes=obj(
        namespaces=obj(from_=enum("All", "Selector", "Same"), selector=SELECTOR),
        kinds=array(obj("kind", group=STR, kind=STR)),
    ),
)  # fmt: skip
GATEWAY = obj(
    "gatewayClassName", "listeners", gatewayClassName=STR, listeners=array(_LISTENER, 1),
    addresses=array(obj(type=STR, value=STR)), infrastructure=ANY,
)  # fmt: skip
GATEWAY_CLASS = obj("controllerName", controllerName=STR, description=STR, parametersRef=ANY)

_RELABEL = obj(
    sourceLabels=array(STR), separator=STR, targetLabel=STR, regex=STR, modulus=INT,
    replacement=STR, action=STR,
)  # fmt: skip
_SCRAPE: dict[str, Schema] = {
    "port": STR, "targetPort": INT_OR_STR, "path": STR, "scheme": STR, "params": ANY,
    "interval": DURATION, "scrapeTimeout": DURATION, "honorLabels": BOOL,
    "honorTimestamps": BOOL, "relabelings": array(_RELABEL),
    "metricRelabelings": array(_RELABEL), "tlsConfig": ANY, "basicAuth": ANY,
    "bearerTokenSecret": SECRET_KEY, "followRedirects": BOOL,
    "authorization": obj(type=STR, credentials=SECRET_KEY),
}  # fmt: skip
_MONITOR: dict[str, Schema] = {
    "selector": SELECTOR, "namespaceSelector": obj(any=BOOL, matchNames=array(STR)),
    "jobLabel": STR, "podTargetLabels": array(STR), "sampleLimit": INT, "labelLimit": INT,
    "attachMetadata": obj(node=BOOL),
}  # fmt: skip
POD_MONITOR = obj(
    "selector", "podMetricsEndpoints", **_MONITOR,
    podMetricsEndpoints=array(obj(**_SCRAPE, portNumber=PORT, filterRunning=BOOL)),
)  # fmt: skip
SERVICE_MONITOR = obj(
    "selector", "endpoints", **_MONITOR, targetLabels=array(STR), endpoints=array(obj(**_SCRAPE))
)
_RULE = obj(
    "expr", alert=STR, record=STR, expr=INT_OR_STR, for_=DURATION, keep_firing_for=DURATION,
    labels=MAP, annotations=MAP,
)  # fmt: skip
PROMETHEUS_RULE = obj(
    groups={
        **array(
            obj(
                "name", name=STR, interval=DURATION, rules=array(_RULE), limit=INT, labels=MAP,
                query_offset=DURATION, partial_response_strategy=STR,
            )
        ),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
)  # fmt: skip

_AGES: Schema = {
    "type": "string",
    "pattern": "^(0|" + "".join(f"(([0-9]+){unit})?" for unit in "ywdhms") + "(([0-9]+)ms)?)$",
}
_TEXT: Schema = {"type": "string", "minLength": 1}
_ROUTE = obj(
    receiver=STR, groupBy=array(STR), groupWait=_AGES, groupInterval=_AGES, repeatInterval=_AGES,
    matchers=array(
        obj("name", name=_TEXT, value=STR, matchType=enum("!=", "=", "=~", "!~"), regex=BOOL)
    ),
    continue_=BOOL, routes=array({"x-kubernetes-preserve-unknown-fields": True}),
    muteTimeIntervals=array(STR), activeTimeIntervals=array(STR),
)  # fmt: skip
_HOOK = obj(
    sendResolved=BOOL, url=STR, urlSecret=SECRET_KEY, httpConfig=ANY, maxAlerts=REPLICAS,
    timeout=_AGES,
)  # fmt: skip
_CHAT = obj(
    sendResolved=BOOL, apiURL=SECRET_KEY, channel=STR, username=STR, title=STR, text=STR,
    color=STR, httpConfig=ANY,
)  # fmt: skip
_LETTER = obj(
    sendResolved=BOOL, to=_TEXT, from_=_TEXT, smarthost=_TEXT, hello=STR, authUsername=_TEXT,
    authPassword=SECRET_KEY, requireTLS=BOOL, html=STR, text=STR, tlsConfig=ANY,
)  # fmt: skip
ALERTMANAGER_CONFIG = obj(
    route=_ROUTE,
    receivers={
        **array(
            obj("name", name=_TEXT, webhookConfigs=array(_HOOK), slackConfigs=array(_CHAT),
                emailConfigs=array(_LETTER))
        ),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    inhibitRules=array(ANY), timeIntervals=array(ANY),
)  # fmt: skip


def crd(
    group: str, version: str, kind: str, plural: str, spec: Schema, namespaced: bool = True
) -> dict[str, Any]:
    schema = obj("spec", apiVersion=STR, kind=STR, metadata={"type": "object"}, spec=spec,
                 status=STATUS)  # fmt: skip
    return {
        "metadata": {
            "name": f"{plural}.{group}",
            # Names in *.k8s.io need an approval annotation, as on the real definitions.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind,
                      "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": True,
                 "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
            ],
        },
    }  # fmt: skip


PARTS: dict[str, tuple[dict[str, Any], ...]] = {
    "keda": (
        crd("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects", SCALED_OBJECT),
        crd("keda.sh", "v1alpha1", "TriggerAuthentication", "triggerauthentications",
            TRIGGER_AUTHENTICATION),
    ),
    "cert-manager": (
        crd("cert-manager.io", "v1", "Certificate", "certificates", CERTIFICATE),
        crd("cert-manager.io", "v1", "Issuer", "issuers", ISSUER),
        crd("cert-manager.io", "v1", "ClusterIssuer", "clusterissuers", ISSUER, False),
    ),
    "gateway-api": (
        crd("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes", HTTP_ROUTE),
        crd("gateway.networking.k8s.io", "v1", "Gateway", "gateways", GATEWAY),
        crd("gateway.networking.k8s.io", "v1", "GatewayClass", "gatewayclasses", GATEWAY_CLASS,
            False),
    ),
    "prometheus-operator": (
        crd("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors", POD_MONITOR),
        crd("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", SERVICE_MONITOR),
        crd("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules", PROMETHEUS_RULE),
        crd("monitoring.coreos.com", "v1alpha1", "AlertmanagerConfig", "alertmanagerconfigs",
            ALERTMANAGER_CONFIG),
    ),
}  # fmt: skip


def install(api: Kube, *parts: str) -> None:
    """Install the parts (default: all) and wait until they are served."""
    wanted = [data for part in parts or PARTS for data in PARTS[part]]
    for data in wanted:
        api.apply("CustomResourceDefinition", "", data, force="true")
    for data in wanted:
        spec = data["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        until(lambda path=path: api.http.get(path).status_code == 200, what=path)
