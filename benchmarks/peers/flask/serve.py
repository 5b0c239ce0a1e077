"""A Flask application with the model in each gunicorn worker."""

from __future__ import annotations

import os
import sys

from flask import Flask, Response, request

from benchmarks.peers.inference import PORT, WORKERS, Model, read, write

app = Flask(__name__)
model: list[Model] = []


@app.get("/ping")
def ping() -> Response:
    """Healthy as soon as the model is loaded."""
    loaded()
    return Response(status=200)


@app.post("/invocations")
def invocations() -> Response:
    """Results in the request's own lines."""
    return Response(write(loaded()(read(request.get_data()))), mimetype="application/json")


def loaded() -> Model:
    """The worker's model, loaded by the first call: gunicorn forks before the application is there."""
    if not model:
        model.append(Model())
    return model[0]


if __name__ == "__main__":
    command = ["-w", str(WORKERS), "-b", f"127.0.0.1:{PORT}", "-t", "600", "--log-level", "warning"]
    os.execv(sys.executable, [sys.executable, "-m", "gunicorn", *command, "benchmarks.peers.flask.serve:app"])  # noqa: S606 - own arguments
