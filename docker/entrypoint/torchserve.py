"""What TorchServe reads: its config.properties, its command line, and the check that the model took its settings."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from batch_handler.settings import MIB, Settings
from entrypoint import gpu_metrics, http, model
from entrypoint.capacity import Capacity
from entrypoint.failure import StartError
from entrypoint.home import Home
from entrypoint.ports import Ports

MAIN_CLASS = "byoc.endpoints.Frontend"
DRAIN_S = 25
MANAGEMENT_OPENS_WITHIN_S = 5.0
RETRY_WINDOW_S = 300
# Read by the launcher or by us, or in the way of the one model that is loaded.
NOT_PASSED_ON = (
    *("batch_size", "max_batch_delay", "min_workers", "max_workers", "models", "model_snapshot"),
    *("vmargs", "plugins_path", "default_service_handler"),
)
FIXED = {
    "enable_envvars_config": "false",
    "disable_token_authorization": "true",
    "enable_model_api": "false",
    "disable_system_metrics": "true",
    "enable_metrics_api": "false",
    "install_py_dep_per_model": "false",
    "async_logging": "false",
    # One model, from its directory: nothing is fetched from anywhere.
    "allowed_urls": "file:///none",
    "default_workers_per_model": "1",
}


class Template(StrEnum):
    """Which workers are forked from one process that has imported what they need."""

    ALWAYS = "always"
    RESTARTS = "restarts"
    """Only a worker that takes the place of one that ended: until then the process is not there and costs nothing."""
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Launch:
    """All that a start of TorchServe needs to know."""

    settings: Settings
    capacity: Capacity
    ports: Ports
    home: Home
    work: Path
    response_mb: int
    heap_mb: int
    decode: bool
    gpus: int = 0
    template: Template = Template.NEVER

    @property
    def gpu_metrics(self) -> Path:
        """What the frontend appends to its metrics; it is there where there are GPUs."""
        return self.work / gpu_metrics.FILE

    @property
    def model_directory(self) -> Path:
        """The directory that TorchServe loads."""
        return self.work / model.NAME


def model_keys(settings: Settings, capacity: Capacity) -> dict[str, int]:
    """TorchServe's keys for the model, as its YAML wants them and as ``GET /models`` gives them back."""
    return {
        "minWorkers": capacity.min_workers,
        "maxWorkers": capacity.max_workers,
        "batchSize": settings.batch_size,
        "maxBatchDelay": settings.max_batch_delay,
        "responseTimeout": settings.response_timeout_s,
        "startupTimeout": settings.startup_timeout,
        # A worker that dies is started again within this window, which must hold more than one slow load.
        "maxRetryTimeoutInSec": max(RETRY_WINDOW_S, 2 * settings.startup_timeout),
    }


def properties(launch: Launch, baked: Mapping[str, str]) -> dict[str, str]:
    """The baked file with everything that settings, machine and work directory decide."""
    settings, ports = launch.settings, launch.ports
    kept = {key: value for key, value in baked.items() if key not in NOT_PASSED_ON}
    decided = {
        "inference_address": f"http://{settings.bind_address}:{settings.port}",
        "management_address": f"http://{http.LOOPBACK}:{ports.management}",
        "initial_worker_port": str(ports.first_worker),
        "job_queue_size": str(settings.queue_size),
        "max_request_size": str(settings.request_limit_mb * MIB),
        "max_response_size": str(launch.response_mb * MIB),
        "default_response_timeout": str(settings.response_timeout_s),
        "default_startup_timeout": str(settings.startup_timeout),
        "decode_input_request": str(launch.decode).lower(),
        "metrics_config": str(launch.home.metrics),
        "model_store": str(launch.work / "store"),
        "workflow_store": str(launch.work / "store"),
        # A multi-model endpoint's models come by the frontend, each when it is asked for.
        "load_models": "" if settings.multi_model else f"{model.NAME}={launch.model_directory}",
        # It deals them out to the workers one after the other; each then keeps the one it was given.
        "number_of_gpu": str(launch.gpus),
    }
    return kept | FIXED | decided


def command(launch: Launch, java: Path, configuration: Path, trace_exporter: Sequence[str] = ()) -> list[str]:
    """The command line of java, which runs that of the trace exporter in turn.

    Raises StartError when a part of the installation is missing.
    """
    settings, home = launch.settings, launch.home
    system_properties = {
        "java.io.tmpdir": launch.work / "tmp",
        "java.library.path": home.native,
        # TorchServe sends each batch through the common pool, which otherwise may start a thread for every one.
        "java.util.concurrent.ForkJoinPool.common.parallelism": 2,
        "model_server_home": home.torchserve(),
        "log4j2.configurationFile": home.log_configuration,
        "log4j2.disableJmx": "true",
        # Chunks of 1 MiB instead of 16: large bodies then come and go by themselves instead of growing the pool.
        "io.netty.allocator.maxOrder": 7,
        "io.grpc.netty.shaded.io.netty.allocator.maxOrder": 3,
        "byoc.model": model.NAME,
        "byoc.execution.max-payload-mb": settings.transform_payload_mb,
        "byoc.execution.max-concurrent-transforms": settings.concurrent_transforms,
        "byoc.execution.strategy": settings.batch_strategy,
        "byoc.drain-seconds": DRAIN_S,
        "byoc.client-timeout": settings.client_timeout,
        "byoc.max-restarts": settings.max_restarts,
        "byoc.queue-size": settings.queue_size,
        "byoc.transform-job": str(settings.batch_transform).lower(),
        "byoc.worker-template": launch.template,
        "byoc.log-format": settings.log_format,
        "byoc.log-level": settings.log_level,
        "byoc.torchserve-log-level": "INFO" if settings.log_level == "DEBUG" else "WARN",
    }
    if settings.slow_request_ms is not None:
        system_properties["byoc.slow-request-ms"] = str(settings.slow_request_ms)
    if trace_exporter:
        system_properties["byoc.trace-exporter"] = "\n".join(trace_exporter)
    if settings.emf_namespace:
        system_properties |= {
            "byoc.emf.namespace": settings.emf_namespace,
            "byoc.emf.dimensions": json.dumps(settings.emf_dimensions or {}),
            "byoc.emf.seconds": settings.emf_seconds,
        }
    if settings.multi_model:
        system_properties |= {
            "byoc.multi-model": "true",
            "byoc.evict-models": str(settings.evict_models).lower(),
            "byoc.preparer": f"{home.program} {launch.work}",
            "byoc.parallel-loads": launch.capacity.threads,
        }
    if launch.gpus:
        system_properties["byoc.gpu-metrics"] = launch.gpu_metrics
    return [
        str(java),
        *virtual_machine(launch.heap_mb),
        *(f"-D{name}={value}" for name, value in system_properties.items()),
        *("-cp", ":".join(str(path) for path in home.class_path())),
        MAIN_CLASS,
        *("--python", str(home.python)),
        *("--ts-config-file", str(configuration)),
        "--no-config-snapshot",
    ]


def virtual_machine(heap_mb: int) -> list[str]:
    """A small, quick JVM: it moves bytes and waits; the CPUs and the memory are the model's."""
    return [
        f"-Xmx{heap_mb}m",
        f"-XX:MaxDirectMemorySize={heap_mb}m",
        "-XX:MaxMetaspaceSize=96m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        # Its own words (SIGQUIT's stacks, for one) are no lines of the log's form.
        "-XX:+DisplayVMOutputToStderr",
        "-XX:+ExitOnOutOfMemoryError",
    ]


def check_model(expected: Mapping[str, int], management_port: int) -> None:
    """Raises StartError when TorchServe runs the model with anything else than the settings say."""
    actual = describe(management_port)
    differing = [key for key, value in expected.items() if actual.get(key) != value]
    if differing:
        shown = ", ".join(f"{key} {actual.get(key)!r} instead of {expected[key]!r}" for key in differing)
        raise StartError(f"TorchServe did not take the model's settings: {shown}")


def describe(management_port: int) -> Mapping[str, Any]:
    """``GET /models/model``: an array with one entry per version."""
    path = f"/models/{model.NAME}"
    try:
        status, body = _first_answer(management_port, path)
        described = json.loads(body)[0] if status == 200 else None
    except (OSError, ValueError, LookupError) as error:
        raise StartError(f"TorchServe does not describe the model that it loaded: {error}") from None
    if not isinstance(described, dict):
        raise StartError(f"TorchServe does not describe the model that it loaded: GET {path} answers {status}")
    return described


def _first_answer(port: int, path: str) -> tuple[int, bytes]:
    """The management port opens a moment after the serving port: it may have refused once."""
    deadline = time.monotonic() + MANAGEMENT_OPENS_WITHIN_S
    while True:
        try:
            return http.get(http.LOOPBACK, port, path, 5.0)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
