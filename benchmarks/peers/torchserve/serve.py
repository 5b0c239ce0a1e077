"""Packs the handler and starts TorchServe in the foreground, stock but for what BENCH_WORKERS and BENCH_BATCH say.

BENCH_HANDLER names another handler, and BENCH_QUIET leaves errors only in its logs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

HANDLER = Path(os.environ.get("BENCH_HANDLER") or Path(__file__).with_name("handler.py"))
QUIET = """\
<Configuration>
  <Appenders><Console name="console"/></Appenders>
  <Loggers><Root level="error"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"""
PORT = int(os.environ["BENCH_PORT"])


def main() -> None:
    """Write an unpacked archive and a configuration into the working directory, and become TorchServe."""
    archive = Path("store/model")
    (archive / "MAR-INF").mkdir(parents=True, exist_ok=True)
    manifest = {
        "createdOn": "",
        "runtime": "python",
        "model": {"modelName": "model", "handler": HANDLER.name, "modelVersion": "1.0", "configFile": "model-config.yaml"},
        "archiverVersion": "0.12.0",
    }
    (archive / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest), "utf-8")
    (archive / HANDLER.name).write_bytes(HANDLER.read_bytes())
    chosen = {"batchSize": os.environ.get("BENCH_BATCH"), "maxBatchDelay": os.environ.get("BENCH_DELAY")}
    workers = os.environ.get("BENCH_WORKERS")
    chosen |= {"minWorkers": workers, "maxWorkers": workers, "responseTimeout": "600"}
    lines = [f"{name}: {value}\n" for name, value in chosen.items() if value]
    (archive / "model-config.yaml").write_text("".join(lines), "utf-8")
    addresses = [
        f"{name}_address=http://127.0.0.1:{PORT + offset}\n" for offset, name in enumerate(("inference", "management", "metrics"))
    ]
    addresses += [f"grpc_{name}_port={PORT + offset}\n" for offset, name in ((3, "inference"), (4, "management"))]
    limits = ["max_request_size=104857600\n", "max_response_size=104857600\n", "job_queue_size=1000\n"]
    Path("config.properties").write_text("".join([*addresses, *limits]), "utf-8")
    options = ["--start", "--foreground", "--ncs", "--disable-token-auth", "--ts-config", "config.properties"]
    if os.environ.get("BENCH_QUIET"):
        Path("quiet.xml").write_text(QUIET, "utf-8")
        options += ["--log-config", "quiet.xml"]
    command = [sys.executable, "-m", "ts.model_server", *options, "--model-store", "store", "--models", "model=model"]
    os.execv(sys.executable, command)  # noqa: S606 - own arguments


if __name__ == "__main__":
    main()
