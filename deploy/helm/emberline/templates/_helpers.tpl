{{- define "emberline.name" -}}
{{- if contains "emberline" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-emberline" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "emberline.selector" -}}
app.kubernetes.io/name: emberline
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The console's pods are known to workloads' network policies by name and component. */}}
{{- define "emberline.labels" -}}
{{ include "emberline.selector" . }}
app.kubernetes.io/component: console
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "emberline.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}
{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "emberline.secret" -}}
{{- .Values.secrets.existingSecret | default (include "emberline.name" .) -}}
{{- end }}

{{- define "emberline.account" -}}
{{- .Values.serviceAccount.name | default (include "emberline.name" .) -}}
{{- end }}

{{- define "emberline.namespaces" -}}
{{- $first := .Values.workloads.namespace | default .Release.Namespace -}}
{{- prepend .Values.workloads.otherNamespaces $first | uniq | toJson -}}
{{- end }}

{{/* "true" where the bundled Valkey is the routers' state store, too. */}}
{{- define "emberline.bundledStore" -}}
{{- if .Values.stateStore.bundled -}}
{{- if not .Values.valkey.enabled }}{{ fail "stateStore.bundled needs valkey.enabled" }}{{ end -}}
{{- if .Values.stateStore.url }}{{ fail "stateStore.bundled and stateStore.url exclude each other" }}{{ end -}}
true
{{- end -}}
{{- end }}

{{/* Everything a program of the console is told; secrets by the path of a file. */}}
{{- define "emberline.settings" -}}
EMBERLINE_ADMIN: "0.0.0.0:9100"
EMBERLINE_ALLOWED_HOSTS: {{ join "," (uniq (compact (concat (list .Values.web.host (include "emberline.name" .) (printf "%s.%s" (include "emberline.name" .) .Release.Namespace) (printf "%s.%s.svc" (include "emberline.name" .) .Release.Namespace)) .Values.web.otherHosts))) | quote }}
EMBERLINE_BREAK_GLASS: {{ join "," .Values.signOn.breakGlass | quote }}
EMBERLINE_CONFIRM_MINUTES: {{ .Values.signOn.confirmMinutes | quote }}
EMBERLINE_ENGINE_IMAGE: {{ .Values.workloads.engineImage | quote }}
EMBERLINE_HOST: "0.0.0.0"
EMBERLINE_HTTPS: {{ ternary "1" "0" .Values.web.https | quote }}
EMBERLINE_INSTALL_ID: {{ printf "%s-%s" .Release.Namespace (include "emberline.name" .) | quote }}
EMBERLINE_LOCAL_LOGIN: {{ .Values.signOn.localLogin | quote }}
EMBERLINE_LOG_FORMAT: {{ .Values.logs.format | quote }}
EMBERLINE_LOG_LEVEL: {{ .Values.logs.level | quote }}
EMBERLINE_NAMESPACE: {{ .Values.workloads.namespace | default .Release.Namespace | quote }}
EMBERLINE_PORT: "8000"
EMBERLINE_PROVISIONER: "kubernetes"
EMBERLINE_PUBLIC_URL: {{ with .Values.web.host }}{{ printf "%s://%s" (ternary "https" "http" $.Values.web.https) . | quote }}{{ else }}""{{ end }}
EMBERLINE_SECOND_FACTOR: {{ .Values.signOn.secondFactor | quote }}
EMBERLINE_SESSION_HOURS: {{ .Values.signOn.sessionHours | quote }}
EMBERLINE_SESSION_IDLE_MINUTES: {{ .Values.signOn.sessionIdleMinutes | quote }}
EMBERLINE_WORKER_IMAGE: {{ .Values.workloads.workerImage | quote }}
EMBERLINE_WORKER_THREADS: {{ .Values.worker.threads | quote }}
FORWARDED_ALLOW_IPS: {{ .Values.web.trustedProxies | quote }}
WORKERS: "vllm"
DJANGO_SECRET_KEY_FILE: /etc/emberline/keys/django-secret-key
EMBERLINE_ENCRYPTION_KEY_FILE: /etc/emberline/keys/encryption-key
EMBERLINE_L2_PASSWORD_FILE: /etc/emberline/keys/l2-password
EMBERLINE_L2_SECRETS: /etc/emberline/l2
EMBERLINE_TARGETS_TOKEN_FILE: /etc/emberline/keys/targets-token
{{- with .Values.signOn.oidcSecret }}
{{- if .name }}
EMBERLINE_OIDC_FILE: /etc/emberline/oidc/{{ first .keys }}
{{- end }}
{{- end }}
{{- with .Values.monitoring }}
{{- if or .liveRules .liveReceivers }}
EMBERLINE_ALERT_OBJECTS: {{ join "," (compact (list (ternary "rules" "" .liveRules) (ternary "receivers" "" .liveReceivers))) | quote }}
{{- if .labels }}
{{- $labels := list }}
{{- range $name, $value := .labels }}{{- $labels = append $labels (printf "%s=%s" $name $value) }}{{- end }}
EMBERLINE_ALERT_OBJECT_LABELS: {{ join "," $labels | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.prometheusUrl }}
PROMETHEUS_URL: {{ . | quote }}
{{- end }}
{{- with .Values.alertmanagerUrl }}
ALERTMANAGER_URL: {{ . | quote }}
{{- end }}
{{- if .Values.alertmanager.enabled }}
ALERTMANAGER_URL: {{ printf "http://%s-alertmanager:9093" (include "emberline.name" .) | quote }}
ALERTMANAGER_USERNAME: emberline
EMBERLINE_ALERTMANAGER_FILE: /etc/alertmanager/alertmanager.yml
{{- end }}
{{- with .Values.metrics }}
{{- if .secret }}
EMBERLINE_METRICS_SECRETS: /etc/emberline/metrics
{{- end }}
{{- range $name, $key := dict "PROMETHEUS_BEARER_TOKEN_FILE" .token "PROMETHEUS_PASSWORD_FILE" .password "PROMETHEUS_CERT_FILE" .cert "PROMETHEUS_KEY_FILE" .key "PROMETHEUS_CA_FILE" .ca }}
{{- if $key }}
{{ $name }}: {{ printf "/etc/emberline/metrics/%s" $key }}
{{- end }}
{{- end }}
{{- range $name, $value := dict "PROMETHEUS_USERNAME" .username "PROMETHEUS_TENANT" .tenant "PROMETHEUS_SIGV4_REGION" .sigv4Region }}
{{- if $value }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.mail }}
{{- if .host }}
EMBERLINE_SMTP_HOST: {{ .host | quote }}
EMBERLINE_SMTP_SECURITY: {{ .security | quote }}
EMBERLINE_SMTP_FROM: {{ required "mail.from is needed: the address mail comes from" .from | quote }}
{{- with .port }}
EMBERLINE_SMTP_PORT: {{ . | quote }}
{{- end }}
{{- with .user }}
EMBERLINE_SMTP_USER: {{ . | quote }}
{{- end }}
{{- if .passwordSecret.name }}
EMBERLINE_SMTP_PASSWORD_FILE: /etc/emberline/mail/{{ .passwordSecret.key }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.web.host }}
EMBERLINE_TRUSTED_ORIGINS: {{ printf "%s://%s" (ternary "https" "http" .Values.web.https) .Values.web.host | quote }}
{{- end }}
{{- if .Values.postgresql.enabled }}
DATABASE_URL: {{ printf "postgres://emberline@%s-postgresql:5432/emberline" (include "emberline.name" .) | quote }}
EMBERLINE_DATABASE_PASSWORD_FILE: /etc/emberline/database/database-password
{{- else if .Values.database.urlSecret.name }}
DATABASE_URL_FILE: /etc/emberline/database/{{ .Values.database.urlSecret.key }}
{{- else }}
DATABASE_URL: {{ required "database.url, database.urlSecret.name or postgresql.enabled is needed" .Values.database.url | quote }}
{{- if .Values.database.passwordSecret.name }}
EMBERLINE_DATABASE_PASSWORD_FILE: /etc/emberline/database/{{ .Values.database.passwordSecret.key }}
{{- end }}
{{- end }}
{{- if .Values.valkey.enabled }}
REDIS_URL: {{ printf "redis://%s-valkey:6379/0" (include "emberline.name" .) | quote }}
EMBERLINE_REDIS_PASSWORD_FILE: /etc/emberline/redis/redis-password
{{- else if .Values.redis.urlSecret.name }}
REDIS_URL_FILE: /etc/emberline/redis/{{ .Values.redis.urlSecret.key }}
{{- else }}
REDIS_URL: {{ required "redis.url, redis.urlSecret.name or valkey.enabled is needed" .Values.redis.url | quote }}
{{- if .Values.redis.passwordSecret.name }}
EMBERLINE_REDIS_PASSWORD_FILE: /etc/emberline/redis/{{ .Values.redis.passwordSecret.key }}
{{- end }}
{{- end }}
{{- if include "emberline.bundledStore" . }}
# With its namespace: routers may be in another one.
EMBERLINE_STATE_STORE_URL: {{ printf "redis://%s-valkey.%s.svc:6379/0" (include "emberline.name" .) .Release.Namespace | quote }}
EMBERLINE_STATE_STORE_USER: routers
EMBERLINE_STATE_STORE_PASSWORD_FILE: /etc/emberline/keys/state-store-password
{{- end }}
{{- with .Values.stateStore }}
{{- if .url }}
EMBERLINE_STATE_STORE_URL: {{ .url | quote }}
{{- with .username }}
EMBERLINE_STATE_STORE_USER: {{ . | quote }}
{{- end }}
{{- if .passwordSecret.name }}
EMBERLINE_STATE_STORE_PASSWORD_FILE: /etc/emberline/state-store/{{ .passwordSecret.key }}
{{- end }}
{{- with .ca }}
EMBERLINE_STATE_STORE_CA_FILE: /etc/emberline/ca/{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Secret and key of the database's and the broker's credentials, "" where there are none. */}}
{{- define "emberline.databaseSecret" -}}
{{- if .Values.postgresql.enabled -}}{{ dict "name" (include "emberline.secret" .) "key" "database-password" | toJson }}
{{- else if .Values.database.urlSecret.name -}}{{ .Values.database.urlSecret | toJson }}
{{- else if .Values.database.passwordSecret.name -}}{{ .Values.database.passwordSecret | toJson }}
{{- end -}}
{{- end }}
{{- define "emberline.redisSecret" -}}
{{- if .Values.valkey.enabled -}}{{ dict "name" (include "emberline.secret" .) "key" "redis-password" | toJson }}
{{- else if .Values.redis.urlSecret.name -}}{{ .Values.redis.urlSecret | toJson }}
{{- else if .Values.redis.passwordSecret.name -}}{{ .Values.redis.passwordSecret | toJson }}
{{- end -}}
{{- end }}

{{- define "emberline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "emberline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "emberline.mounts" -}}
- {name: var, mountPath: /var/lib/emberline}
- {name: tmp, mountPath: /tmp}
- {name: keys, mountPath: /etc/emberline/keys, readOnly: true}
{{- if include "emberline.databaseSecret" . }}
- {name: database, mountPath: /etc/emberline/database, readOnly: true}
{{- end }}
{{- if include "emberline.redisSecret" . }}
- {name: redis, mountPath: /etc/emberline/redis, readOnly: true}
{{- end }}
{{- if and .Values.stateStore.url .Values.stateStore.passwordSecret.name }}
- {name: state-store, mountPath: /etc/emberline/state-store, readOnly: true}
{{- end }}
{{- if .Values.signOn.oidcSecret.name }}
- {name: oidc, mountPath: /etc/emberline/oidc, readOnly: true}
{{- end }}
{{- if and .Values.mail.host .Values.mail.passwordSecret.name }}
- {name: mail, mountPath: /etc/emberline/mail, readOnly: true}
{{- end }}
{{- if .Values.workloads.l2Secret }}
- {name: l2, mountPath: /etc/emberline/l2, readOnly: true}
{{- end }}
{{- if .Values.metrics.secret }}
- {name: metrics, mountPath: /etc/emberline/metrics, readOnly: true}
{{- end }}
{{- if or .Values.caBundle.configMap .Values.caBundle.secret }}
- {name: ca, mountPath: /etc/emberline/ca, readOnly: true}
{{- end }}
{{- end }}

{{/* Keys as files (a Secret that changes is read at the next start); what is written is scratch. */}}
{{- define "emberline.volumes" -}}
- {name: var, emptyDir: {sizeLimit: 256Mi}}
- {name: tmp, emptyDir: {sizeLimit: 256Mi}}
- name: keys
  secret:
    secretName: {{ include "emberline.secret" . }}
    defaultMode: 0440
    items:
      - {key: django-secret-key, path: django-secret-key}
      - {key: encryption-key, path: encryption-key}
      - {key: l2-password, path: l2-password}
      - {key: targets-token, path: targets-token}
      {{- if include "emberline.bundledStore" . }}
      - {key: state-store-password, path: state-store-password}
      {{- end }}
{{- with include "emberline.databaseSecret" . }}
{{- $from := fromJson . }}
- name: database
  secret:
    secretName: {{ $from.name }}
    defaultMode: 0440
    items: [{key: {{ $from.key }}, path: {{ $from.key }}}]
{{- end }}
{{- with include "emberline.redisSecret" . }}
{{- $from := fromJson . }}
- name: redis
  secret:
    secretName: {{ $from.name }}
    defaultMode: 0440
    items: [{key: {{ $from.key }}, path: {{ $from.key }}}]
{{- end }}
{{- with .Values.stateStore }}
{{- if and .url .passwordSecret.name }}
- name: state-store
  secret:
    secretName: {{ .passwordSecret.name }}
    defaultMode: 0440
    items: [{key: {{ .passwordSecret.key }}, path: {{ .passwordSecret.key }}}]
{{- end }}
{{- end }}
{{- with .Values.signOn.oidcSecret }}
{{- if .name }}
- name: oidc
  secret:
    secretName: {{ .name }}
    defaultMode: 0440
    items:
      {{- range .keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
{{- end }}
{{- with .Values.mail }}
{{- if and .host .passwordSecret.name }}
- name: mail
  secret:
    secretName: {{ .passwordSecret.name }}
    defaultMode: 0440
    items: [{key: {{ .passwordSecret.key }}, path: {{ .passwordSecret.key }}}]
{{- end }}
{{- end }}
{{- with .Values.workloads.l2Secret }}
- {name: l2, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with .Values.metrics.secret }}
- {name: metrics, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- if .Values.caBundle.configMap }}
- {name: ca, configMap: {name: {{ .Values.caBundle.configMap }}}}
{{- else if .Values.caBundle.secret }}
- {name: ca, secret: {secretName: {{ .Values.caBundle.secret }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{- define "emberline.env" -}}
envFrom:
  - configMapRef: {name: {{ include "emberline.name" . }}}
{{- with .Values.extraEnv }}
env:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}

{{- define "emberline.podMeta" -}}
labels:
  {{- include "emberline.labels" .root | nindent 2 }}
  emberline.dev/program: {{ .program }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  emberline.dev/settings: {{ include "emberline.settings" .root | sha256sum | trunc 16 | quote }}
  {{- if and .scraped (not .root.Values.monitoring.podMonitor) }}
  prometheus.io/scrape: "true"
  prometheus.io/port: "9100"
  prometheus.io/path: /metrics
  {{- end }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* New pods begin only on a database of their version; the Job beside them brings it there. */}}
{{- define "emberline.waitForMigrations" -}}
- name: wait-for-migrations
  image: {{ include "emberline.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [sh, -c, "until python -m django emberline_migrate --check; do sleep 3; done"]
  {{- include "emberline.env" . | nindent 2 }}
  resources:
    requests: {cpu: 50m, memory: 128Mi}
    limits: {memory: 384Mi}
  securityContext:
    {{- include "emberline.containerSecurity" . | nindent 4 }}
  volumeMounts:
    {{- include "emberline.mounts" . | nindent 4 }}
{{- end }}

{{- define "emberline.podCommon" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
enableServiceLinks: false
securityContext:
  {{- include "emberline.podSecurity" . | nindent 2 }}
{{- end }}

{{- define "emberline.spread" -}}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "emberline.selector" $.root | nindent 8 }}
        emberline.dev/program: {{ $.program }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}

{{/* Files of the chart that are derived from the console, and not kept in the repository. */}}
{{- define "emberline.unmade" -}}
The chart's dashboards and rules are missing. In a checkout, run `make chart` first; a packaged chart has them.
{{- end }}
