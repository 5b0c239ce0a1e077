"""Runs the SageMaker Python SDK's local mode in its own environment: transform jobs, then one call of an endpoint.

Reads one JSON object from standard input: ``image``, ``model`` (a model.tar.gz), ``root`` (a folder to work in), ``port``,
``jobs`` (each ``name`` and the arguments of create_transform_job) and ``call`` (``body``, ``content_type``, ``accept``).
Writes one to standard output: ``states`` by the jobs' names and the endpoint's answer as ``answer``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from sagemaker.local import LocalSession

ROLE = "arn:aws:iam::123456789012:role/nobody"


def main() -> None:
    """Run what is asked for, everything that the SDK prints on standard error."""
    asked = json.load(sys.stdin)
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the SDK and docker-compose print, too
    session = LocalSession(disable_local_code=True)
    session.config = {"local": {"local_code": False, "container_root": asked["root"], "serving_port": asked["port"]}}
    client = session.sagemaker_client
    container = {"Image": asked["image"], "ModelDataUrl": Path(asked["model"]).as_uri(), "Environment": {}}
    client.create_model(ModelName="model", PrimaryContainer=container, ExecutionRoleArn=ROLE)
    states = {}
    for job in asked["jobs"]:
        client.create_transform_job(ModelName="model", TransformJobName=job["name"], **job["arguments"])
        states[job["name"]] = client.describe_transform_job(job["name"])["TransformJobStatus"]
    answer = called(session, asked["call"]) if asked.get("call") else None
    with said:
        json.dump({"states": states, "answer": answer}, said)


def called(session: LocalSession, call: dict[str, str]) -> str:
    """The answer of a local endpoint to one call."""
    client = session.sagemaker_client
    variant = {"VariantName": "all", "ModelName": "model", "InitialInstanceCount": 1, "InstanceType": "local"}
    client.create_endpoint_config(EndpointConfigName="endpoint", ProductionVariants=[variant])
    client.create_endpoint(EndpointName="endpoint", EndpointConfigName="endpoint")
    try:
        runtime = session.sagemaker_runtime_client
        answer = runtime.invoke_endpoint(call["body"], "endpoint", call["content_type"], call["accept"])
        return answer["Body"].read().decode()
    finally:
        client.delete_endpoint(EndpointName="endpoint")


if __name__ == "__main__":
    main()
