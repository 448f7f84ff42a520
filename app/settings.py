"""All settings of the service, with their limits.

A value comes from, in this order: the command line, the environment (``ROLLWAY_...``), a TOML file, its default.
A name that does not exist is an error in each of them.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from log_model.config import TopicConfig
from log_model.errors import InvalidConfigError
from rollway.records.compiled import PURE_PYTHON_VARIABLE
from schemas.load_jobs import JOB_TIMEOUT_MS_MAX
from schemas.names import host_name_problem, principal_problem

ENVIRONMENT_PREFIX = "ROLLWAY_"
FILE_VARIABLE = "ROLLWAY_CONFIG"
# Variables of the commands that call a service, and of the library; the service does not read them.
_VARIABLES_OF_OTHERS = frozenset({"ROLLWAY_SERVER", "ROLLWAY_API_KEY", "ROLLWAY_SPARK_MASTER", PURE_PYTHON_VARIABLE})

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB
_DAY_MS = 86_400_000

JWT_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with public keys only: the holder of a shared secret could also sign."""

_NEXT_PAIR = re.compile(r",(?=[^,=]+=)")


class SettingsError(ValueError):
    """The settings cannot be used. The message is one sentence for people."""


def _setting(default: Any, description: str, *, low: int | None = None, high: int | None = None) -> Any:
    return Field(default=default, ge=low, le=high, description=description)


def _interval_ms(default: int, description: str) -> Any:
    return _setting(default, description, low=1, high=_DAY_MS)


def parse_topic_defaults(value: object) -> object:
    """Parse topic settings by Kafka's names: JSON, ``name=value,name=value``, or nested tables.

    A TOML file may have ``retention.ms = 1`` without quotes, which TOML reads as a table in a table.
    """
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("{"):
            try:
                value = json.loads(text)
            except json.JSONDecodeError as error:
                raise ValueError(f"is no JSON object: {error}") from None
            except RecursionError:
                raise ValueError("is nested too deeply") from None
        else:
            pairs = [pair.partition("=") for pair in _NEXT_PAIR.split(text)] if text else []
            if not all(equals and name.strip() for name, equals, _ in pairs):
                raise ValueError("must be a JSON object or name=value,name=value")
            value = {name.strip(): setting.strip() for name, _, setting in pairs}
    return _flattened(value) if isinstance(value, Mapping) else value


def _flattened(table: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def parse_list(value: object) -> object:
    """Parse a list from text with ``;`` between its items. A comma may be part of a distinguished name."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(";") if item.strip()]
    return value


class Settings(BaseSettings):
    """The settings of one service. Immutable. ``load_settings`` turns faults into a sentence."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True, validate_default=False, env_ignore_empty=False
    )

    config: Path | None = _setting(None, "TOML file with any of these settings.")
    data_dir: Path = _setting(Path("rollway-data"), "Directory for all data of the service; created if absent.")
    host: str = _setting("127.0.0.1", "Address to listen on; one that is not loopback needs authentication and TLS.")
    port: int = _setting(8080, "Port to listen on; 0 picks a free one.", low=0, high=65_535)
    insecure_no_authentication: bool = _setting(
        False, "Allow listening on a non-loopback address without authentication."
    )
    authentication: bool = _setting(
        False, "Authenticate every request, and authorise it by ACLs; only health routes stay open."
    )
    super_users: Annotated[list[str], NoDecode, BeforeValidator(parse_list)] = Field(
        default_factory=list,
        description="Principals that may do everything, such as User:admin; in the environment separated by ;.",
    )
    jwt_keys_file: Path | None = _setting(
        None, "JWK set or PEM public key that verifies JWTs; read again when it changes. Absent: no JWTs."
    )
    jwt_issuer: str = _setting("", "The iss that a JWT must have.")
    jwt_audience: str = _setting("", "The aud that a JWT must have.")
    jwt_algorithms: Annotated[list[str], NoDecode, BeforeValidator(parse_list)] = Field(
        default=["RS256", "ES256"], description="Accepted signature algorithms of JWTs; only with public keys."
    )
    authentication_failures_per_minute: int = _setting(
        60, "Failed authentications of one address that get 401; further ones get 429.", low=1, high=1_000_000
    )
    trusted_proxies: Annotated[list[str], NoDecode, BeforeValidator(parse_list)] = Field(
        default_factory=list,
        description="Addresses or networks of proxies that terminate TLS: secrets may come from them without TLS, and "
        "only their X-Forwarded-For is accepted.",
    )
    allowed_hosts: Annotated[list[str], NoDecode, BeforeValidator(parse_list)] = Field(
        default_factory=list,
        description="Names accepted in Host, beside those of loopback: a name, .name or *.name for all below it, * for "
        "all; others get 421. Empty: Host is checked only on a loopback address without authentication.",
    )
    tls_certificate: Path | None = _setting(None, "PEM file with the service's certificate and chain; enables TLS.")
    tls_key: Path | None = _setting(None, "PEM file with the certificate's private key.")
    tls_client_ca: Path | None = _setting(
        None, "PEM file with the authorities whose client certificates authenticate requests."
    )
    tls_client_certificates: Literal["optional", "required"] = _setting(
        "optional", "With tls_client_ca: whether a client without a certificate may connect."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting("info", "Lowest level of logged messages.")
    log_format: Literal["text", "json"] = _setting("text", "Form of a log line: text for people, or a JSON object.")
    access_log: bool = _setting(False, "Log a line for each request; costs about half the rate of small requests.")

    topic_defaults: Annotated[dict[str, Any], NoDecode, BeforeValidator(parse_topic_defaults)] = Field(
        default_factory=dict,
        description="Defaults of topic settings, by Kafka's names; in the environment JSON or name=value,name=value.",
    )
    file_delete_delay_ms: int | None = _setting(
        None, "Shorthand for the topic default file.delete.delay.ms.", low=0, high=2**63 - 1
    )

    retention_check_interval_ms: int = _interval_ms(300_000, "Time between checks of segments against retention.")
    roll_check_interval_ms: int = _interval_ms(10_000, "Time between checks of active segments against segment.ms.")
    flush_check_interval_ms: int = _interval_ms(1_000, "Time between checks of unflushed records against flush.ms.")
    checkpoint_interval_ms: int = _interval_ms(60_000, "Time between checkpoints of recovery points and log starts.")
    high_watermark_checkpoint_interval_ms: int = _interval_ms(5_000, "Time between checkpoints of high watermarks.")
    file_delete_check_interval_ms: int = _interval_ms(
        1_000, "Time between checks of deleted segments' files against file.delete.delay.ms."
    )

    producer_id_expiration_ms: int = _setting(
        _DAY_MS,
        "Time after its last write for which an idempotent producer, or an Idempotency-Key, is remembered.",
        low=1,
        high=2**63 - 1,
    )
    producer_id_expiration_check_interval_ms: int = _interval_ms(600_000, "Time between checks for idle producers.")
    producer_count_max: int = _setting(
        100_000,
        "Most producers and keys remembered per partition; the longest idle are forgotten first.",
        low=1,
        high=10_000_000,
    )
    transaction_check_interval_ms: int = _interval_ms(
        10_000, "Time between checks of transactions against their timeouts, and for idle transactional ids."
    )

    load_job_check_interval_ms: int = _interval_ms(
        1_000, "Time between checks of load jobs against their timeouts, and for old jobs."
    )

    start_position_check_interval_ms: int = _interval_ms(600_000, "Time between checks for unused start positions.")

    partition_count_max: int = _setting(
        100_000, "Most partitions of all topics together; those in use need open files.", low=1, high=10_000_000
    )
    partition_idle_ms: int = _interval_ms(600_000, "Time without appends after which a partition's files are closed.")
    partition_idle_check_interval_ms: int = _interval_ms(10_000, "Time between checks for idle partitions.")
    partition_metrics_max: int = _setting(
        1_000, "Partitions that /metrics shows one by one; 0 for none.", low=0, high=1_000_000
    )
    request_body_bytes_max: int = _setting(32 * _MIB, "Largest body of a request as sent.", low=1, high=2 * _GIB)
    control_body_bytes_max: int = _setting(
        _MIB, "Largest body of a request that carries no records.", low=1 * _KIB, high=64 * _MIB
    )
    decompressed_bytes_max: int = _setting(
        64 * _MIB, "Largest body of a request after its Content-Encoding is decoded.", low=1, high=2 * _GIB
    )
    request_bodies_bytes_max: int = _setting(
        256 * _MIB,
        "Most bytes of bodies in memory, until their requests are answered; above it bodies over 64 KiB are refused.",
        low=_MIB,
        high=64 * _GIB,
    )
    decoded_answers_bytes_max: int = _setting(
        64 * _MIB,
        "Bytes of responses over 64 KiB that are being sent, without raw batches. Near it, responses with decoded "
        "records get smaller; at twice this size, requests that change nothing are refused.",
        low=_MIB,
        high=64 * _GIB,
    )
    decoding_bytes_max: int = _setting(
        640 * _MIB,
        "About the most memory for decoding stored batches and parsing bodies, of all requests together; further "
        "requests wait. One request may always proceed.",
        low=_MIB,
        high=64 * _GIB,
    )
    request_header_bytes_max: int = _setting(
        32 * _KIB, "Largest request line with all headers.", low=1 * _KIB, high=1 * _MIB
    )
    request_header_count_max: int = _setting(100, "Most headers of a request.", low=8, high=10_000)
    request_header_timeout_ms: int = _interval_ms(
        10_000, "Time for a request's headers to arrive, or for a TLS handshake."
    )
    request_body_bytes_per_second_min: int = _setting(
        1 * _KIB, "Slowest rate at which a body may arrive; 0: any.", low=0, high=_GIB
    )
    request_body_grace_ms: int = _interval_ms(10_000, "Length of the periods over which a body's rate is measured.")
    keep_alive_timeout_ms: int = _interval_ms(60_000, "Time for which an idle connection stays open.")
    send_stall_timeout_ms: int = _interval_ms(30_000, "Time after which a client that accepts no byte is disconnected.")
    connections_max: int = _setting(20_000, "Most open connections.", low=1, high=1_000_000)
    connections_per_address_max: int = _setting(5_000, "Most open connections from one address.", low=1, high=1_000_000)
    tcp_congestion: str = _setting(
        "", "Congestion control of accepted connections, such as cubic; empty: the system's."
    )
    tcp_unsent_bytes_max: int = _setting(
        256 * _KIB,
        "About the bytes of a response that the kernel buffers; 16 times as many while few clients wait.",
        low=4 * _KIB,
        high=64 * _MIB,
    )
    backlog: int = _setting(2_048, "Connections that may wait to be accepted.", low=1, high=65_535)

    waiter_count_max: int = _setting(10_000, "Most fetches that wait for records at a time.", low=0, high=1_000_000)
    fetch_bytes_max: int = _setting(
        _GIB, "Most bytes that one fetch of raw record batches returns, and the largest max_bytes.", low=1, high=_GIB
    )
    multi_fetch_bytes_max: int = _setting(
        55 * _MIB, "Most bytes of a fetch of many partitions; its first batch may be larger.", low=1, high=_GIB
    )
    fetch_session_count_max: int = _setting(1_000, "Most fetch sessions.", low=0, high=100_000)
    fetch_session_partition_count_max: int = _setting(
        200_000, "Most partitions in all fetch sessions together.", low=0, high=10_000_000
    )
    fetch_session_idle_ms: int = _interval_ms(120_000, "Idle time after which a new fetch session may replace one.")
    mailbox_bytes_max: int = _setting(
        64 * _MIB, "Most bytes that wait to be appended to one partition.", low=_MIB, high=4 * _GIB
    )
    mailbox_count_max: int = _setting(10_000, "Most appends that wait for one partition.", low=1, high=1_000_000)
    group_bytes_max: int = _setting(
        8 * _MIB, "Most bytes of one write; a single larger request is still written at once.", low=1, high=_GIB
    )
    produce_part_count_max: int = _setting(
        1_000, "Most topic-partitions of one request to /v1/produce.", low=1, high=100_000
    )
    inline_append_bytes_max: int = _setting(
        1280 * _KIB,
        "An append of at most this many bytes is written on the event loop while its partition is idle and the disk "
        "does not stall. The loop also waits for its fsync, up to 256 KiB, if the disk answers sooner than a thread "
        "would; 0: always in a thread.",
        low=0,
        high=8 * _MIB,
    )
    group_count_max: int = _setting(1_000, "Most requests of one write.", low=1, high=100_000)
    write_threads: int = _setting(4, "Threads that append.", low=1, high=256)
    flush_threads: int = _setting(4, "Threads that fsync.", low=1, high=256)
    journal_bytes_max: int = _setting(
        256 * _MIB,
        "Most bytes of the journal, which makes small appends to many partitions durable by one fsync; 0: none.",
        low=0,
        high=16 * _GIB,
    )
    recovery_threads: int = _setting(4, "Partitions recovered at a time after an unclean stop.", low=1, high=256)
    read_threads: int = _setting(4, "Threads that read and decode records.", low=1, high=256)

    transaction_max_timeout_ms: int = _setting(900_000, "Longest timeout of a transaction.", low=1, high=2**31 - 1)
    transactional_id_expiration_ms: int = _setting(
        7 * _DAY_MS, "Time after which an idle transactional id is forgotten.", low=1, high=365 * _DAY_MS
    )
    transactional_id_count_max: int = _setting(
        100_000, "Most transactional ids that are known at a time.", low=1, high=10_000_000
    )
    transaction_partition_count_max: int = _setting(
        1_000, "Most partitions that one transaction writes to.", low=1, high=3_000
    )

    load_job_max_timeout_ms: int = _setting(
        _DAY_MS, "Longest time without a sign of life that a load job may ask for.", low=1, high=JOB_TIMEOUT_MS_MAX
    )
    load_job_expiration_ms: int = _setting(
        7 * _DAY_MS, "Time that a load job is remembered after its end.", low=1, high=365 * _DAY_MS
    )
    load_job_count_max: int = _setting(
        10_000, "Most load jobs that are open, and most that are remembered after their end.", low=1, high=1_000_000
    )
    load_job_lists_bytes_max: int = _setting(
        64 * 1024 * 1024,
        "Most memory for the lists of topics and partitions of open load jobs, and as much again for ended ones.",
        low=4 * 1024 * 1024,
        high=2**40,
    )
    load_job_attempt_count_max: int = _setting(
        20_000, "Most attempts of all tasks of one load job.", low=1, high=50_000
    )

    start_position_expiration_ms: int = _setting(
        7 * _DAY_MS,
        "Time without use after which the start positions of a group are forgotten.",
        low=1,
        high=10 * 365 * _DAY_MS,
    )
    start_position_count_max: int = _setting(
        100_000, "Most start positions of all groups: one for each partition of a group.", low=1, high=10_000_000
    )

    shutdown_grace_ms: int = _interval_ms(
        10_000, "Time that requests in progress have at SIGTERM before they are cut off; long polls end at once."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - part of the base class's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in their order: arguments, environment, file."""
        _refuse_unknown_variables(cls.model_fields)
        path = init_settings().get("config") or os.environ.get(FILE_VARIABLE)
        if not path:
            return init_settings, env_settings
        _refuse_no_file(Path(path))
        try:
            return init_settings, env_settings, _TomlFile(settings_cls, toml_file=path)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"The settings file {path} is no TOML: {error}.") from None
        except OSError as error:
            raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}.") from None
        except (ValueError, RecursionError) as error:
            # A number of thousands of digits, or deeply nested tables: valid TOML, but no setting.
            raise SettingsError(f"The settings file {path} cannot be read: {error}.") from None

    @field_validator("data_dir", "tls_certificate", "tls_key", "tls_client_ca", "jwt_keys_file", mode="before")
    @classmethod
    def _path_is_named(cls, value: object) -> object:
        if value == "":
            raise ValueError("it is empty; name a path")
        return value

    @field_validator("topic_defaults")
    @classmethod
    def _topic_defaults_are_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            TopicConfig.parse(value)
        except InvalidConfigError as error:
            raise ValueError(str(error)) from None
        return dict(value)

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        reason = access_problem(self)
        if reason is not None:
            raise ValueError(reason)
        if self.file_delete_delay_ms is not None:
            self.topic_defaults.setdefault("file.delete.delay.ms", self.file_delete_delay_ms)
        return self


class _TomlFile(TomlConfigSettingsSource):
    """A settings file in which true and false are not taken for numbers."""

    def __call__(self) -> dict[str, Any]:
        values = super().__call__()
        for name, value in values.items():
            field = self.settings_cls.model_fields.get(name)
            # pydantic takes true for 1, and would listen on that port.
            if isinstance(value, bool) and field is not None and bool not in _types_of(field.annotation):
                raise SettingsError(f"The settings are wrong: {name}: {str(value).lower()} is no value it can have.")
        return values


def _types_of(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


def _refuse_no_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        reason = "does not exist" if is_missing else f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise SettingsError(f"The settings file {path} {reason}.") from None
    if stat.S_ISDIR(mode):
        raise SettingsError(f"The settings file {path} is a directory.")
    if not stat.S_ISREG(mode):
        raise SettingsError(f"The settings file {path} is no regular file: a pipe or a device cannot be one.")


def access_problem(settings: Settings) -> str | None:
    """Return the reason why the settings of access contradict each other, as a sentence, or ``None``."""
    if settings.authentication and settings.insecure_no_authentication:
        return "authentication and insecure_no_authentication exclude each other"
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        return "tls_certificate and tls_key belong together"
    if settings.tls_client_ca is not None and not (settings.tls_certificate and settings.authentication):
        return "tls_client_ca needs tls_certificate, tls_key and authentication"
    if settings.jwt_keys_file is not None and not (settings.jwt_issuer and settings.jwt_audience):
        return "jwt_keys_file needs jwt_issuer and jwt_audience: a JWT for another audience is not for this service"
    unfit = [name for name in settings.jwt_algorithms if name not in JWT_ALGORITHMS]
    if unfit or not settings.jwt_algorithms:
        return f"jwt_algorithms may be {', '.join(JWT_ALGORITHMS)}, not {', '.join(unfit) or 'none at all'}"
    for principal in settings.super_users:
        if (problem := principal_problem(principal)) is not None:
            return f"super_users: {problem}; several are separated by ; in the environment"
    for proxy in settings.trusted_proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            return f"trusted_proxies: {proxy!r} is no address and no network"
    for name in settings.allowed_hosts:
        if (problem := host_name_problem(name)) is not None:
            return f"allowed_hosts: {problem}"
    if is_loopback(settings.host) or settings.insecure_no_authentication:
        return None
    if not settings.authentication:
        return (
            f"host {settings.host} can be reached from other machines without authentication: turn on "
            "authentication, listen on 127.0.0.1, or accept that with insecure_no_authentication"
        )
    if settings.tls_certificate is None and not settings.trusted_proxies:
        return (
            f"host {settings.host} can be reached from other machines and secrets would travel in the clear: set "
            "tls_certificate and tls_key, or name the proxy that speaks TLS in trusted_proxies"
        )
    return None


def _refuse_unknown_variables(known: Mapping[str, object]) -> None:
    names = {f"{ENVIRONMENT_PREFIX}{name}".upper() for name in known} | _VARIABLES_OF_OTHERS
    unknown = sorted(
        name for name in os.environ if name.upper().startswith(ENVIRONMENT_PREFIX) and name.upper() not in names
    )
    if unknown:
        verdict = "which is no setting" if len(unknown) == 1 else "which are no settings"
        raise SettingsError(f"The environment has {', '.join(unknown)}, {verdict} of Rollway.")


def is_loopback(host: str) -> bool:
    """Return whether ``host`` can only be reached from this machine. Of names only localhost counts as such."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_settings(**given: Any) -> Settings:
    """Load the settings from ``given``, the environment and the settings file.

    Raises:
        SettingsError: names are unknown or values are not valid. The message is a sentence that names all of them.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError(_sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    reasons = []
    for fault in error.errors(include_url=False):
        name = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            reasons.append(f"{name} is no setting of Rollway")
        else:
            text = fault["msg"].removeprefix("Value error, ")
            reasons.append(f"{name}: {text}" if name else text)
    return f"The settings are wrong: {'; '.join(reasons)}."
