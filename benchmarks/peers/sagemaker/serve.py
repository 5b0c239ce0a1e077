"""Lays out a model directory and starts the toolkit, kept on loopback and out of /etc; all else is as installed."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import psutil

PORT = int(os.environ["BENCH_PORT"])
LIMITS = {"max_request_size": "104857600", "max_response_size": "104857600", "default_response_timeout": "600"}


def main() -> None:
    """Write model/ and model/code/ into the working directory, and serve them as the toolkit does."""
    base = Path.cwd()
    shutil.rmtree(base / "model", ignore_errors=True)
    (base / "model" / "code").mkdir(parents=True)
    for path in Path(os.environ["BENCH_MODEL"]).iterdir():
        (base / "model" / path.name).symlink_to(path)
    shutil.copy(Path(__file__).with_name("inference.py"), base / "model" / "code")
    os.environ |= {
        "SAGEMAKER_BASE_DIR": str(base),
        "SAGEMAKER_BIND_TO_PORT": str(PORT),
        "SAGEMAKER_MODEL_SERVER_WORKERS": os.environ.get("BENCH_WORKERS", "1"),
        "SAGEMAKER_MODEL_SERVER_TIMEOUT": "600",
        "TS_JOB_QUEUE_SIZE": "1000",
    }
    from sagemaker_pytorch_serving_container import serving, torchserve

    generate = torchserve._generate_ts_config_properties  # noqa: SLF001 - the toolkit listens on all addresses

    def on_loopback(handler_service: str) -> str:
        ports = {"grpc_inference_port": PORT + 3, "grpc_management_port": PORT + 4}
        own = {"metrics_address": f"http://127.0.0.1:{PORT + 2}", **ports, **LIMITS}
        generated = str(generate(handler_service)).replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - replaced
        return generated.rstrip("\n") + "\n" + "".join(f"{name}={value}\n" for name, value in own.items())

    torchserve._generate_ts_config_properties = on_loopback  # noqa: SLF001
    torchserve._retrieve_ts_server_process = own_java  # noqa: SLF001 - the toolkit takes any TorchServe of the machine for its own
    torchserve.TS_CONFIG_FILE = str(base / "sagemaker-ts.properties")
    serving.main()


def own_java() -> psutil.Process:
    """The frontend among the processes of this one's group. Raises RuntimeError when there is none after 10 s."""
    for _ in range(100):
        for process in psutil.process_iter(["cmdline"]):
            ours = os.getpgid(process.pid) == os.getpgid(0)
            if ours and "org.pytorch.serve.ModelServer" in (process.info["cmdline"] or []):
                return process
        time.sleep(0.1)
    raise RuntimeError("TorchServe did not start")


if __name__ == "__main__":
    main()
