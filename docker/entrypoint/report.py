"""The start lines: that the server is ready, and every setting in force with its source where it is not the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batch_handler.resources import Resources
from batch_handler.settings import MIB, TABLE, Settings
from entrypoint.environment import as_text
from entrypoint.http import reachable_address

# Told first whoever set them; of the others, what somebody chose.
FOREMOST = (
    *("handler", "task", "model_dir", "batch_size", "max_batch_delay", "min_workers", "max_workers", "threads"),
    *("response_timeout", "max_payload_mb", "max_response_mb"),
)
EXAMPLE = """'{"inputs": ["a quiet kettle", "rain on a tin roof"]}'"""


def settings_in_force(settings: Settings, effective: Mapping[str, Any]) -> dict[str, str]:
    """Name → value, with ``(source)`` behind it when somebody set it; what nobody set and has no value is left out."""
    shown = {}
    for name in TABLE:
        value = effective.get(name, getattr(settings, name))
        if value is not None:
            source = settings.sources.get(name, "default")
            shown[name] = as_text(value) + ("" if _is_default(name, source, value) else f" ({_short(source)})")
    return shown


def start_line(seconds: float, settings: Settings, resources: Resources, in_force: Mapping[str, str]) -> str:
    """One line for a human: time, address, machine, and the settings that matter most or were chosen."""
    memory = f", {resources.memory_bytes // MIB:,} MiB" if resources.memory_bytes else ""
    cpus = f"{resources.cpus:g} CPU" + ("" if resources.cpus == 1 else "s")
    ordered = [*(name for name in FOREMOST if name in in_force), *(name for name in in_force if name not in FOREMOST)]
    values = {name: in_force[name] for name in ordered if _comes_first(name, in_force[name])}
    return f"ready in {seconds:.1f} s on {settings.bind_address}:{settings.port} ({cpus}{memory}): {_pairs(values)}"


def other_settings(in_force: Mapping[str, str]) -> str:
    """The line after it: what is in force besides."""
    return f"other settings: {_pairs({name: value for name, value in in_force.items() if not _comes_first(name, value)})}"


def example(settings: Settings) -> str:
    """A command line to copy."""
    host = reachable_address(settings.bind_address)
    host = "localhost" if host == "127.0.0.1" else host
    return f"curl -s {host}:{settings.port}/invocations -H 'Content-Type: application/json' -d {EXAMPLE}"


def _comes_first(name: str, value: str) -> bool:
    """A source in parentheses is the mark of a choice."""
    return name in FOREMOST or value.endswith(")")


def _pairs(values: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _is_default(name: str, source: str, value: Any) -> bool:
    """The shipped config.properties repeats some defaults; that is no choice of anybody's."""
    return source == "default" or (source.startswith("config.properties") and value == TABLE[name].default)


def _short(source: str) -> str:
    """The file alone where the setting's key in it says nothing new."""
    return source.partition(" ")[0]
