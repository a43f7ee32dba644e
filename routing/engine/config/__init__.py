"""Router configuration: one frozen Config, parsed from a file or flags and validated as a whole.

Import from this package. The console calls `parse` before it publishes a file.
"""

from routing.engine.config.keys import parse_keys
from routing.engine.config.parser import parse
from routing.engine.config.public_view import memory_bounds, show_config, show_key
from routing.engine.config.schema import (
    LOG_LEVELS,
    AccessLogConfig,
    Address,
    AdmissionConfig,
    CanaryConfig,
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
    RecordingConfig,
    Service,
    SessionKey,
    StateStoreConfig,
    TlsConfig,
    TracingConfig,
    WorkerConfig,
    WorkerTlsConfig,
)
from routing.engine.config.syntax import parse_address, parse_strategy
from routing.engine.config.validation import ConfigError

__all__ = [
    "LOG_LEVELS",
    "AccessLogConfig",
    "Address",
    "AdmissionConfig",
    "CanaryConfig",
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
    "RecordingConfig",
    "Service",
    "SessionKey",
    "StateStoreConfig",
    "TlsConfig",
    "TracingConfig",
    "WorkerConfig",
    "WorkerTlsConfig",
    "memory_bounds",
    "parse",
    "parse_address",
    "parse_keys",
    "parse_strategy",
    "show_config",
    "show_key",
]
