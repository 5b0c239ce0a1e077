"""Every setting of the container: its names in order of precedence, its type, its bounds and its default, in one table.

Owns the resolution environment > artefact's ``model-config.yaml`` > ``config.properties`` > default, and the sentences
about bad values.
What follows from a setting (ports, heap, workers) is decided by the entrypoint.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batch_handler import cloudwatch

OUR_PREFIX = "BYOC_"
SAGEMAKER_TS_PREFIX = "SAGEMAKER_TS_"
MIB = 1024 * 1024
DEFAULT_PAYLOAD_MB = 25
MEGAPIXEL = 1_000_000
DEFAULT_MEGAPIXELS = 500
"""Forty photos of twelve megapixels, or ten of the largest picture that is taken."""
STREAM_PAYLOAD_MB = 100
TRANSFORM_PAYLOAD_MB = 6
TRANSFORM_TOTAL_MB = 100
TRANSFORM_RESPONSE_TIMEOUT = 3_600
LOG_LEVELS = {10: "DEBUG", 20: "INFO", 30: "WARN", 40: "ERROR", 50: "FATAL"}


class SettingError(Exception):
    """A value that cannot be used: one sentence with the variable, the value and what is accepted."""


Parse = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """How one setting is found and read.

    ``variables`` come in order of precedence; ``yaml`` is its key in model-config.yaml, ``property`` in config.properties.
    ``accepts`` completes the sentence "… is not accepted: use …".
    """

    variables: tuple[str, ...]
    parse: Parse
    accepts: str
    default: Any = None
    yaml: str | None = None
    property: str | None = None


def whole(low: int, high: int) -> Parse:
    """A whole number within bounds, both included, in the digits 0 to 9 alone (Python's own reader takes other scripts')."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit()):
            raise ValueError(text)
        value = int(text, 10)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


def flag(text: str) -> bool:
    """True or false, in any case (SageMaker's local mode sends ``True``)."""
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    return words[text.strip().lower()]


def choice(*words: str) -> Parse:
    """One of these words, in any case."""
    known = {word.lower(): word for word in words}
    return lambda text: known[text.strip().lower()]


def port_range(text: str) -> tuple[int, int]:
    """SageMaker's inclusive ``low-high``."""
    low, high = (int(part, 10) for part in text.split("-"))
    if not 0 < low <= high < 65_536:
        raise ValueError(text)
    return low, high


def log_level(text: str) -> str:
    """A Python logging number (as the SageMaker toolkits take it) or a level's name."""
    word = text.strip().upper()
    names = {name: name for name in LOG_LEVELS.values()} | {"WARNING": "WARN", "CRITICAL": "FATAL"}
    return LOG_LEVELS[int(word)] if word.isdigit() else names[word]


def field_map(text: str) -> dict[str, str]:
    """A JSON object: payload field → ``inputs`` (at most one) or ``parameters.<name>``."""
    value = json.loads(text)
    targets = list(value.values()) if isinstance(value, dict) else [None]
    if not all(isinstance(target, str) and _is_target(target) for target in targets) or targets.count("inputs") > 1:
        raise ValueError(text)
    return dict(value)


def _is_target(target: str) -> bool:
    prefix, _, name = target.partition(".")
    return target == "inputs" or (prefix == "parameters" and bool(name.strip()))


def local_path(text: str) -> Path:
    """An absolute path: a hub id ("org/name") is refused because nothing is downloaded at start."""
    path = Path(text)
    if not path.is_absolute():
        raise ValueError(text)
    return path


def script(text: str) -> str:
    """A Python file's name, or its path below code/."""
    path = Path(text.strip())
    if path.suffix != ".py" or path.is_absolute() or ".." in path.parts:
        raise ValueError(text)
    return str(path)


def words(text: str) -> str:
    """Any text that is not empty."""
    if not text.strip():
        raise ValueError(text)
    return text.strip()


_PORT = whole(1, 65_534)  # TorchServe refuses the last one

TABLE: dict[str, Setting] = {
    "model_dir": Setting(
        ("BYOC_MODEL_DIR", "HF_MODEL_ID"),
        local_path,
        "an absolute path to a model directory (nothing is downloaded at start)",
        Path("/opt/ml/model"),
    ),
    "bind_address": Setting(("BYOC_BIND_ADDRESS",), words, "an IP address to listen on", "0.0.0.0"),  # noqa: S104 - a container serves its network
    "port": Setting(("SAGEMAKER_BIND_TO_PORT",), _PORT, "a port from 1 to 65534", 8080),
    "safe_port_range": Setting(
        ("SAGEMAKER_SAFE_PORT_RANGE",), port_range, "two ports as low-high, both included, such as 9000-9999"
    ),
    "batch_size": Setting(
        ("SAGEMAKER_TS_BATCH_SIZE", "TS_BATCH_SIZE"),
        whole(1, 1_024),
        "a whole number of requests from 1 to 1024",
        32,
        "batchSize",
        "batch_size",
    ),
    "max_batch_delay": Setting(
        ("SAGEMAKER_TS_MAX_BATCH_DELAY", "TS_MAX_BATCH_DELAY"),
        whole(1, 600_000),
        "a whole number of milliseconds from 1 to 600000",
        1,
        "maxBatchDelay",
        "max_batch_delay",
    ),
    "min_workers": Setting(
        ("SAGEMAKER_TS_MIN_WORKERS", "SAGEMAKER_MODEL_SERVER_WORKERS", "TS_MIN_WORKERS"),
        whole(1, 256),
        "a whole number of workers from 1 to 256",
        None,
        "minWorkers",
        "min_workers",
    ),
    "max_workers": Setting(
        ("SAGEMAKER_TS_MAX_WORKERS", "SAGEMAKER_MODEL_SERVER_WORKERS", "TS_MAX_WORKERS"),
        whole(1, 256),
        "a whole number of workers from 1 to 256",
        None,
        "maxWorkers",
        "max_workers",
    ),
    "threads": Setting(("BYOC_THREADS",), whole(1, 1_024), "a whole number of compute threads per worker from 1 to 1024"),
    "response_timeout": Setting(
        (
            "SAGEMAKER_TS_RESPONSE_TIMEOUT",
            "SAGEMAKER_MODEL_SERVER_TIMEOUT",
            "TS_DEFAULT_RESPONSE_TIMEOUT",
        ),
        whole(1, 86_400),
        "a whole number of seconds from 1 to 86400",
        None,
        "responseTimeout",
        "default_response_timeout",
    ),
    "startup_timeout": Setting(
        ("BYOC_STARTUP_TIMEOUT",),
        whole(1, 86_400),
        "a whole number of seconds from 1 to 86400",
        480,
        "startupTimeout",
        "default_startup_timeout",
    ),
    "queue_size": Setting(
        ("BYOC_QUEUE_SIZE",),
        whole(1, 1_000_000),
        "a whole number of requests from 1 to 1000000",
        1_000,
        "jobQueueSize",
        "job_queue_size",
    ),
    "max_payload_mb": Setting(
        ("SAGEMAKER_MAX_PAYLOAD_IN_MB",), whole(0, 1_024), "a whole number of MB from 0 (a stream) to 1024"
    ),
    "max_records": Setting(("BYOC_MAX_RECORDS",), whole(1, 100_000_000), "a whole number of records from 1", 500_000),
    "max_megapixels": Setting(("BYOC_MAX_MEGAPIXELS",), whole(1, 1_000_000), "a whole number of megapixels from 1 to 1000000"),
    "max_response_mb": Setting(("BYOC_MAX_RESPONSE_MB",), whole(1, 2_000), "a whole number of MB from 1 to 2000"),
    "default_accept": Setting(("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT",), words, "a media type"),
    "log_level": Setting(
        ("SAGEMAKER_CONTAINER_LOG_LEVEL",), log_level, "10, 20, 30, 40, 50 or DEBUG, INFO, WARNING, ERROR, CRITICAL", "INFO"
    ),
    "log_format": Setting(("BYOC_LOG_FORMAT",), choice("text", "json"), "text or json", "text"),
    "slow_request_ms": Setting(
        ("BYOC_SLOW_REQUEST_MS",), whole(0, 86_400_000), "a whole number of milliseconds from 0 (every request) to 86400000"
    ),
    "emf_namespace": Setting(
        ("BYOC_EMF_NAMESPACE",),
        cloudwatch.namespace,
        "a CloudWatch namespace: 1 to 255 letters, digits and . - _ / # :, not beginning with AWS/ or :",
    ),
    "emf_dimensions": Setting(
        ("BYOC_EMF_DIMENSIONS",),
        cloudwatch.dimensions,
        'a JSON object of at most 8 ASCII names (none Model, none a metric\'s) and texts, such as {"EndpointName": "sentences"}',
    ),
    "emf_seconds": Setting(("BYOC_EMF_SECONDS",), whole(1, 3_600), "a whole number of seconds from 1 to 3600", 60),
    "batch_transform": Setting(("SAGEMAKER_BATCH",), flag, "true or false", False),
    "batch_strategy": Setting(
        ("SAGEMAKER_BATCH_STRATEGY",),
        choice("SINGLE_RECORD", "MULTI_RECORD"),
        "SINGLE_RECORD or MULTI_RECORD",
        "MULTI_RECORD",
    ),
    "max_concurrent_transforms": Setting(
        ("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS",), whole(0, 100), "a whole number from 0 (our choice) to 100"
    ),
    "task": Setting(("HF_TASK",), words, "the name of a task, such as text-classification", None, "task"),
    "program": Setting(("SAGEMAKER_PROGRAM",), script, "the name of a .py file in the artefact's code/", "inference.py"),
    "allow_install": Setting(("BYOC_ALLOW_INSTALL",), flag, "true or false", False),
    "trust_remote_code": Setting(("HF_TRUST_REMOTE_CODE",), flag, "true or false", False),
    "engine": Setting(
        ("BYOC_ENGINE",),
        choice("auto", "packed", "eager", "graphs", "openvino", "onnx"),
        "auto, packed, eager, graphs (on a GPU), openvino or onnx",
        "auto",
    ),
    "precision": Setting(
        ("BYOC_PRECISION",),
        choice("auto", "fp32", "tf32", "bf16", "fp16", "int8-weights", "int8"),
        "auto (the packaged engine's, else fp32), fp32, tf32, bf16, fp16, int8-weights or int8",
        "auto",
    ),
    "device": Setting(("BYOC_DEVICE",), choice("auto", "cpu", "cuda"), "auto, cpu or cuda", "auto"),
    "token_budget": Setting(("BYOC_TOKEN_BUDGET",), whole(1, 1_000_000), "a whole number of tokens from 1 to 1000000", 1_024),
    "csv_header": Setting(("BYOC_CSV_HEADER",), flag, "true or false", False),
    "fields": Setting(("BYOC_FIELDS",), field_map, 'a JSON object such as {"sentence": "inputs", "k": "parameters.top_k"}'),
    "on_bad_record": Setting(("BYOC_ON_BAD_RECORD",), choice("reject", "placeholder"), "reject or placeholder"),
    "truncation": Setting(("BYOC_TRUNCATION",), flag, "true or false", True),
    "client_timeout": Setting(
        ("BYOC_CLIENT_TIMEOUT",), whole(0, 86_400), "a whole number of seconds from 0 (no end) to 86400", 60
    ),
    "max_restarts": Setting(("BYOC_MAX_RESTARTS",), whole(0, 1_000), "a whole number from 0 to 1000", 5),
    "multi_model": Setting(("SAGEMAKER_MULTI_MODEL",), flag, "true or false", False),
    "evict_models": Setting(("BYOC_EVICT_MODELS",), flag, "true or false", False),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, resolved. None means that nobody set it and the default follows from something else."""

    model_dir: Path
    bind_address: str
    port: int
    safe_port_range: tuple[int, int] | None
    batch_size: int
    max_batch_delay: int
    min_workers: int | None
    max_workers: int | None
    threads: int | None
    response_timeout: int | None
    startup_timeout: int
    queue_size: int
    max_payload_mb: int | None
    max_records: int
    max_megapixels: int | None
    max_response_mb: int | None
    default_accept: str | None
    log_level: str
    log_format: str
    slow_request_ms: int | None
    emf_namespace: str | None
    emf_dimensions: Mapping[str, str] | None
    emf_seconds: int
    batch_transform: bool
    batch_strategy: str
    max_concurrent_transforms: int | None
    task: str | None
    program: str
    allow_install: bool
    trust_remote_code: bool
    engine: str
    precision: str
    device: str
    token_budget: int
    csv_header: bool
    fields: Mapping[str, str] | None
    on_bad_record: str | None
    truncation: bool
    client_timeout: int
    max_restarts: int
    multi_model: bool
    evict_models: bool
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def request_limit_mb(self) -> int:
        """The largest request body in MiB, inflated or not; 0 in the setting asks for a stream of up to 100."""
        if self.max_payload_mb is None:
            return DEFAULT_PAYLOAD_MB
        return self.max_payload_mb or STREAM_PAYLOAD_MB

    @property
    def pixel_limit(self) -> float:
        """Pixels that a request's pictures may have together: what a slow core decodes in half of an endpoint's minute."""
        if self.max_megapixels is None:
            return math.inf if self.batch_transform else DEFAULT_MEGAPIXELS * MEGAPIXEL
        return self.max_megapixels * MEGAPIXEL

    @property
    def placeholders(self) -> bool:
        """Whether a bad record costs only its own place (transform jobs) or its request (endpoints)."""
        return self.on_bad_record == "placeholder" if self.on_bad_record else self.batch_transform

    @property
    def response_timeout_s(self) -> int:
        """Seconds that a batch may take: SageMaker's 60 at an endpoint, 3,600 in a transform job."""
        return self.response_timeout or (TRANSFORM_RESPONSE_TIMEOUT if self.batch_transform else 60)

    @property
    def transform_payload_mb(self) -> int:
        """MaxPayloadInMB as told to batch transform, whose own default is 6."""
        return TRANSFORM_PAYLOAD_MB if self.max_payload_mb is None else self.max_payload_mb

    @property
    def concurrent_transforms(self) -> int:
        """MaxConcurrentTransforms; times MaxPayloadInMB it may not exceed 100."""
        allowed = max(1, TRANSFORM_TOTAL_MB // max(1, self.transform_payload_mb))
        return min(self.max_concurrent_transforms or self.batch_size, allowed)


def resolve(
    environment: Mapping[str, str],
    model_config: Mapping[str, Any] | None = None,
    properties: Mapping[str, str] | None = None,
) -> Settings:
    """Find every setting in the first place that has it.

    Raises SettingError for a value that cannot be used and for an unknown ``BYOC_*`` variable.
    """
    reject_unknown(environment)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, setting in TABLE.items():
        source, raw = _find(setting, environment, model_config or {}, properties or {})
        values[name] = setting.default if raw is None else _parse(setting, source, raw)
        sources[name] = source
    if values["min_workers"] and values["max_workers"] and values["min_workers"] > values["max_workers"]:
        raise SettingError(
            f"{sources['min_workers']} is {values['min_workers']}, more than {sources['max_workers']}, "
            f"which is {values['max_workers']}: set the minimum to at most the maximum"
        )
    return Settings(**values, sources=sources)


def _find(
    setting: Setting, environment: Mapping[str, str], model_config: Mapping[str, Any], properties: Mapping[str, str]
) -> tuple[str, str | None]:
    for variable in setting.variables:
        if environment.get(variable, "").strip():
            return variable, environment[variable]
    if setting.yaml is not None and model_config.get(setting.yaml) is not None:
        return f"model-config.yaml {setting.yaml}", str(model_config[setting.yaml])
    if setting.property is not None and properties.get(setting.property, "").strip():
        return f"config.properties {setting.property}", properties[setting.property]
    return "default", None


def _parse(setting: Setting, source: str, raw: str) -> Any:
    try:
        return setting.parse(raw.strip())
    except (ValueError, KeyError, IndexError):
        shown = raw if len(raw) <= 80 else raw[:79] + "…"
        raise SettingError(f"{source}={shown!r} is not accepted: use {setting.accepts}") from None


def reject_unknown(environment: Mapping[str, str]) -> None:
    """Stop at a ``BYOC_*`` variable that does not exist, and name the nearest one that does."""
    known = {variable for setting in TABLE.values() for variable in setting.variables}
    for variable in environment:
        if variable.startswith(OUR_PREFIX) and variable not in known:
            ours = sorted(name for name in known if name.startswith(OUR_PREFIX))
            nearest = _nearest(variable, known)
            raise SettingError(f"{variable} is not a setting: did you mean {nearest}? The settings are {', '.join(ours)}")


def _nearest(variable: str, known: Collection[str]) -> str:
    """The known name that reads most like an unknown one, whatever its prefix."""
    stems = {name.removeprefix(OUR_PREFIX).removeprefix(SAGEMAKER_TS_PREFIX): name for name in sorted(known)}
    return stems[difflib.get_close_matches(variable.removeprefix(OUR_PREFIX), stems, 1, 0.0)[0]]


def unknown_sagemaker_variables(environment: Mapping[str, str]) -> list[str]:
    """``SAGEMAKER_TS_*`` variables that nothing reads: worth a warning."""
    known = {variable for setting in TABLE.values() for variable in setting.variables}
    return sorted(name for name in environment if name.startswith(SAGEMAKER_TS_PREFIX) and name not in known)


def response_limit_mb(settings: Settings, memory_bytes: int | None) -> int:
    """The largest answer in MiB: the setting, else a sixteenth of the memory, but at least 64 and at most 512."""
    if settings.max_response_mb is not None:
        return settings.max_response_mb
    share = math.inf if memory_bytes is None else memory_bytes // 16 // MIB
    return int(min(512, max(64, share)))
