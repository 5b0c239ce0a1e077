"""Whether traces are exported, and by which command: by the standard variables of OpenTelemetry, off without an endpoint."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from entrypoint.failure import BAD_SETTING, StartError
from entrypoint.home import Home

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
LIBRARY = "opentelemetry.exporter.otlp.proto.http"
PROTOCOL = "http/protobuf"


def exporter(environment: Mapping[str, str], home: Home) -> list[str]:
    """The command that exports traces; empty where nobody asks for any. Raises StartError for what cannot be done."""
    variable, endpoint = _first(environment, ENDPOINTS)
    if not endpoint or environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or _exporter_is_none(environment):
        return []
    if not endpoint.startswith(("http://", "https://")):
        raise StartError(f"{variable}={endpoint!r} is not accepted: use a URL such as http://collector:4318", BAD_SETTING)
    name, protocol = _first(environment, PROTOCOLS)
    if protocol not in ("", PROTOCOL):
        raise StartError(f"{name}={protocol!r} is not accepted: traces leave by {PROTOCOL} alone", BAD_SETTING)
    if not _installed():
        raise StartError(
            f"{variable} is set, and OpenTelemetry is not installed here: build the image with --build-arg TRACING=otlp, "
            "or do without the variable",
            BAD_SETTING,
        )
    return [str(home.python), "-P", "-m", "entrypoint.trace_exporter"]


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """The first of the variables that says anything, and what it says."""
    return next(((name, value) for name in names if (value := environment.get(name, "").strip())), (names[-1], ""))


def _exporter_is_none(environment: Mapping[str, str]) -> bool:
    return environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"


def _installed() -> bool:
    try:
        return importlib.util.find_spec(LIBRARY) is not None
    except ModuleNotFoundError:
        return False
