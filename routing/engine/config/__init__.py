"""What the router is told: one frozen Config, read from a file or from flags, checked whole.

Promises that a Config which exists is usable, and that a wrong one is refused naming field, value
and remedy. The console's publisher calls `parse` before it writes the file. Users import from
here; the modules inside part what a Config is (shapes) from how it is read.
"""

from routing.engine.config.access import parse_keys
from routing.engine.config.fields import ConfigError
from routing.engine.config.parser import parse
from routing.engine.config.public_view import bounds, show, show_key
from routing.engine.config.schema import (
    LOG_LEVELS,
    STRATEGIES,
    AccessLogConfig,
    Address,
    AdmissionConfig,
    Config,
    DiscoveryConfig,
    DnsName,
    HealthConfig,
    JournalConfig,
    Key,
    KeyLimits,
    KubernetesConfig,
    KvConfig,
    LimitsConfig,
    QueueConfig,
    Rates,
    Service,
    SessionKey,
    TlsConfig,
    TracingConfig,
    WorkerConfig,
    WorkerTlsConfig,
)
from routing.engine.config.syntax import parse_address, parse_session_key, parse_strategy

__all__ = [
    "LOG_LEVELS",
    "STRATEGIES",
    "AccessLogConfig",
    "Address",
    "AdmissionConfig",
    "Config",
    "ConfigError",
    "DiscoveryConfig",
    "DnsName",
    "HealthConfig",
    "JournalConfig",
    "Key",
    "KeyLimits",
    "KubernetesConfig",
    "KvConfig",
    "LimitsConfig",
    "QueueConfig",
    "Rates",
    "Service",
    "SessionKey",
    "TlsConfig",
    "TracingConfig",
    "WorkerConfig",
    "WorkerTlsConfig",
    "bounds",
    "parse",
    "parse_address",
    "parse_keys",
    "parse_session_key",
    "parse_strategy",
    "show",
    "show_key",
]
