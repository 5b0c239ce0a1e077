"""Lays out a model directory and starts the toolkit, kept on loopback and out of /etc; all else is as installed.

The script is that of the PyTorch toolkit's peer: both toolkits take the same four functions.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

PORT = int(os.environ["BENCH_PORT"])
SCRIPT = Path(__file__).parents[1] / "sagemaker" / "inference.py"
LIMITS = {"max_request_size": "104857600", "max_response_size": "104857600", "job_queue_size": "1000"}
SERVER = "com.amazonaws.ml.mms.ModelServer"


def main() -> None:
    """Write model/ and model/code/ into the working directory, and serve them as the toolkit does."""
    base = Path.cwd()
    shutil.rmtree(base / "model", ignore_errors=True)
    (base / "model" / "code").mkdir(parents=True)
    for path in Path(os.environ["BENCH_MODEL"]).iterdir():
        (base / "model" / path.name).symlink_to(path)
    shutil.copy(SCRIPT, base / "model" / "code")
    os.environ |= {
        "SAGEMAKER_BASE_DIR": str(base),
        "SAGEMAKER_BIND_TO_PORT": str(PORT),
        "SAGEMAKER_SAFE_PORT_RANGE": f"{PORT + 1}-{PORT + 4}",
        "SAGEMAKER_MODEL_SERVER_WORKERS": os.environ.get("BENCH_WORKERS", "1"),
        "SAGEMAKER_MODEL_SERVER_TIMEOUT": "600",
    }
    from sagemaker_huggingface_inference_toolkit import mms_model_server, serving  # type: ignore[import-not-found]  # in its own environment only
    from sagemaker_inference import model_server

    generate = model_server._generate_mms_config_properties  # noqa: SLF001 - the toolkit listens on all addresses

    def on_loopback(environment: object, handler_service: str | None = None) -> str:
        generated = str(generate(environment, handler_service)).replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - replaced
        return generated + "".join(f"{name}={value}\n" for name, value in LIMITS.items())

    own = str(base / "sagemaker-mms.properties")
    model_server._generate_mms_config_properties = on_loopback  # noqa: SLF001
    model_server._retrieve_mms_server_process = own_java  # noqa: SLF001 - the toolkit takes any such server of the machine for its own
    model_server.MMS_CONFIG_FILE = mms_model_server.MMS_CONFIG_FILE = own
    serving.main()


def own_java() -> psutil.Process:
    """The frontend among the processes of this one's group. Raises RuntimeError, after which the toolkit asks again."""
    for process in psutil.process_iter(["cmdline"]):
        if os.getpgid(process.pid) == os.getpgid(0) and SERVER in (process.info["cmdline"] or []):
            return process
    raise RuntimeError("multi-model-server did not start")


if __name__ == "__main__":
    main()
