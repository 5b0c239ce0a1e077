"""The start line: that the server is ready, and every setting in force with its source where it is not the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batch_handler.resources import Resources
from batch_handler.settings import MIB, TABLE, Settings
from entrypoint.environment import as_text
from entrypoint.http import reachable_address

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
    """One line for a human: time, address, machine, settings."""
    memory = f", {resources.memory_bytes // MIB:,} MiB" if resources.memory_bytes else ""
    machine = f"{resources.cpus:g} CPUs{memory}"
    values = " ".join(f"{name}={value}" for name, value in in_force.items())
    return f"ready in {seconds:.1f} s on {settings.bind_address}:{settings.port} ({machine}): {values}"


def example(settings: Settings) -> str:
    """A command line to copy."""
    host = reachable_address(settings.bind_address)
    host = "localhost" if host == "127.0.0.1" else host
    return f"curl -s {host}:{settings.port}/invocations -H 'Content-Type: application/json' -d {EXAMPLE}"


def _is_default(name: str, source: str, value: Any) -> bool:
    """The shipped config.properties repeats some defaults; that is no choice of anybody's."""
    return source == "default" or (source.startswith("config.properties") and value == TABLE[name].default)


def _short(source: str) -> str:
    """The file alone where the setting's key in it says nothing new."""
    return source.partition(" ")[0]
