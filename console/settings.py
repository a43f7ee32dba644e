"""Django settings of the console, from the typed environment.

Every variable is read here, once. `manage.py check` reports contradictions between them (see
console/web/checks.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dj_database_url

from console.core import environment, mail, outbound
from console.signon.core import configuration as signon

BASE_DIR = Path(__file__).resolve().parent.parent
VARIABLES = environment.ReadVariables(os.environ)
EMBERLINE = environment.load(VARIABLES, BASE_DIR)
HTTPS = environment.flag(VARIABLES, "EMBERLINE_HTTPS")
outbound.set_allowed(EMBERLINE.outbound_allow)

DEBUG = environment.flag(VARIABLES, "EMBERLINE_DEBUG")
SECRET_KEY = environment.text(VARIABLES, "DJANGO_SECRET_KEY") or environment.generated_secret(
    EMBERLINE.secrets / "django_secret_key"
)
ALLOWED_HOSTS = [
    "localhost",
    "127.0.0.1",
    "[::1]",
    *([EMBERLINE.host] if EMBERLINE.host not in ("0.0.0.0", "::") else []),
    *environment.host_names(VARIABLES, "EMBERLINE_ALLOWED_HOSTS"),
]
CSRF_TRUSTED_ORIGINS = environment.origins(VARIABLES, "EMBERLINE_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",  # Swagger UI assets
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "console",  # management commands
    "console.accounts",
    "console.people",
    "console.audit",
    "console.signon",
    "console.catalogue",
    "console.system",
    "console.vault",
    "console.clusters",
    "console.web",
    "console.api",
    "cachetier",
    "endpoints",
    "endpoints.controller",
    "endpoints.router",
    "dashboards.insight.traces",
    "dashboards.insight.whatif",
    "dashboards",
    "dashboards.costs",
    "dashboards.insight.advisor",
    "dashboards.custom_boards",
    "dashboards.benchmarks",
    "dashboards.alerts.settings",
    "dashboards.alerts.alertmanager",
    "dashboards.prometheus.sources",
    "dashboards.alerts.cluster_objects",
]

MIDDLEWARE = [
    "console.web.middleware.RequestIdMiddleware",
    "console.web.middleware.MeterMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "console.web.middleware.SecurityHeadersMiddleware",
    "console.web.middleware.StorableUrlMiddleware",
    "console.web.middleware.MethodNotAllowedMiddleware",
    "console.api.preconditions.ConditionalMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "console.signon.middleware.SessionUseMiddleware",
    "console.web.middleware.TimeZoneMiddleware",
    "console.web.middleware.LoginRequiredMiddleware",
    "console.signon.middleware.LoginDemandsMiddleware",
    "console.accounts.gate.GateMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
# Loaded by console.web in Django setup, so that every process publishes to our broker.
CELERY_APP = "console.celery_app"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.web.shell.context.shell_context",
            ],
            "builtins": ["console.web.templatetags.emberline"],
        },
    }
]

DATABASES: dict[str, Any] = {
    "default": dj_database_url.parse(
        environment.database_url(VARIABLES, f"sqlite:///{EMBERLINE.var}/db.sqlite3"),
        # under ASGI each request has its own thread, so connections are not reusable
        conn_max_age=0,
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"] |= {
        "OPTIONS": {
            # Writers take the lock at BEGIN, so that a transaction that reads before it writes
            # waits for its turn (timeout in seconds) instead of failing at once.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
        },
        # A file, so that threads of a test share it as processes do.
        "TEST": {"NAME": EMBERLINE.var / "test.sqlite3"},
    }
else:
    # Seconds; an unreachable server must not block pages or the readiness check.
    DATABASES["default"].setdefault("OPTIONS", {}).setdefault("connect_timeout", 5)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

AUTH_USER_MODEL = "accounts.User"
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}", "OPTIONS": options}
    for name, options in (
        ("UserAttributeSimilarityValidator", {}),
        ("MinimumLengthValidator", {"min_length": 10}),
        ("CommonPasswordValidator", {}),
        ("NumericPasswordValidator", {}),
    )
]
LOGIN_URL = "signon:login"
LOGIN_REDIRECT_URL = "/"
# Modules whose views concern the current user: every account may use them.
PAGES_ABOUT_ONESELF = ("allauth.", "console.signon.")
LOGOUT_REDIRECT_URL = "signon:login"
SIGNON = signon.load_policy(VARIABLES)
OIDC_PROVIDERS = signon.load_providers(VARIABLES)
MAIL = mail.load(VARIABLES)
# External address for links in messages; "" omits the links.
PUBLIC_URL = environment.text(VARIABLES, "EMBERLINE_PUBLIC_URL").rstrip("/")
# django-allauth provides second factors and OpenID Connect. Our login limits count across processes
# and do not let strangers lock a user out; allauth's would count the same attempts again.
ACCOUNT_ADAPTER = "console.signon.flow.AccountAdapter"
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGIN_TIMEOUT = 600  # s from the password to the second factor
ACCOUNT_RATE_LIMITS = False
MFA_ADAPTER = "console.signon.factors.FactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_RECOVERY_CODE_DIGITS = 10
MFA_RATE_LIMITS = {"webauthn_login": "60/m/ip"}  # an office has one address; nothing to guess
MFA_TOTP_TOLERANCE = 1  # steps of clock skew in either direction
MFA_WEBAUTHN_USER_VERIFICATION = "required"
SOCIALACCOUNT_ADAPTER = "console.signon.oidc.SocialAdapter"
SOCIALACCOUNT_REQUESTS_TIMEOUT = 5
# Failures before a wait (per name and network, and per network), failures after which unknown
# clients get one attempt each (per name, and in total), and the counting window (s).
LOGIN_FAILURES_PER_USER = 5
LOGIN_FAILURES_PER_ADDRESS = 20
LOGIN_BRAKE_PER_USER = 50
LOGIN_BRAKE = 1000
LOGIN_WINDOW_S = 300

# Browsers ignore the port for cookies, so it is in the name. With TLS, `__Host-` makes browsers
# reject cookies set by a sibling domain or without TLS.
_COOKIE = "__Host-emberline" if HTTPS else "emberline"
SESSION_COOKIE_NAME = f"{_COOKIE}_session_{EMBERLINE.port}"
CSRF_COOKIE_NAME = f"{_COOKIE}_csrf_{EMBERLINE.port}"
DEVICE_COOKIE_NAME = f"{_COOKIE}_device_{EMBERLINE.port}"
SESSION_ENGINE = "console.signon.models"
SESSION_COOKIE_AGE = int(SIGNON.longest.total_seconds())
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = HTTPS
CSRF_FAILURE_VIEW = "console.web.errors.csrf_failure"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
X_FRAME_OPTIONS = "DENY"

# Bytes of a form or a JSON body, as in console/api/content.py; uploaded files do not count.
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/"
STATIC_ROOT = EMBERLINE.static_root
STATICFILES_DIRS = [BASE_DIR / "console" / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "console.web.server.static_files.HashedStorage"},
}
WHITENOISE_USE_FINDERS = True

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "console.api.access.TokenAuthentication",  # the first supplies the WWW-Authenticate header
        "console.api.access.LocalAuthentication",
        "console.api.access.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "console.api.access.RolePermission",
        "console.api.query_validation.ParameterValidator",
    ],
    "DEFAULT_PAGINATION_CLASS": "console.api.pagination.CursorPages",
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "console.api.content.Negotiation",
    "DEFAULT_FILTER_BACKENDS": ["console.api.parameters.DeclaredFilters"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["console.api.content.StrictJSONParser"],
    "DEFAULT_METADATA_CLASS": None,  # the schema describes the API; OPTIONS is rejected
    "DEFAULT_SCHEMA_CLASS": "console.api.schema.ConsoleAutoSchema",
    "DEFAULT_THROTTLE_CLASSES": [
        "console.api.access.AnonymousThrottle",
        "console.api.access.CallerThrottle",
    ],
    "DEFAULT_THROTTLE_RATES": {"anonymous": "60/min", "caller": "1200/min"},
    "EXCEPTION_HANDLER": "console.api.exceptions.handle_error",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Emberline API",
    "DESCRIPTION": "REST API of the Emberline console.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "console.api.schema.drop_null_alternatives",
    ],
    # L1 of an endpoint also has a policy, with other choices.
    "ENUM_NAME_OVERRIDES": {
        "CostsRangeEnum": "dashboards.costs.reports.endpoints.RANGES",
        "CacheTierPolicyEnum": "cachetier.tier.spec.POLICIES",
        "RoleEnum": "console.accounts.models.Role",
        "TeamRoleEnum": "console.accounts.models.TeamRole",
        "ClusterKindEnum": "console.provisioners.kubernetes.api.access.KINDS",
        "StrategyEnum": "endpoints.spec.fields.STRATEGIES",
        "RunStateEnum": "endpoints.runs.RunState",
        "AlertSeverityEnum": "dashboards.alerts.rules.rule.SEVERITIES",
        "RuleTrialRangeEnum": "dashboards.alerts.evaluation.dry_run.KEYS",
        "SilenceKindEnum": "dashboards.alerts.alertmanager.silences.KINDS",
        "ReceiverKindEnum": "dashboards.alerts.alertmanager.config.receiver_kinds.CHOICES",
        "SilenceStateEnum": "dashboards.alerts.alertmanager.silences.STATES",
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "console.core.request_log.LogFilter"}},
    "formatters": {
        "line": {"format": "{asctime} {levelname} {name} [{request_id}] {message}", "style": "{"},
        "json": {"()": "console.core.request_log.JsonFormatter"},
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": EMBERLINE.log_format,
            "filters": ["request_id"],
        }
    },
    "root": {"handlers": ["stderr"], "level": EMBERLINE.log_level},
    "loggers": {
        # uvicorn has installed its own handlers before this module is imported; unify the format.
        "uvicorn": {"handlers": [], "propagate": True},
        "uvicorn.error": {"handlers": [], "propagate": True},
        "uvicorn.access": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        # A traceback for each request of a scanner; console.web.errors writes one line.
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        # Two lines per sweep every two seconds would hide relevant ones; failures are still logged.
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
    },
}
