"""AWS over HTTP on loopback: moto's server process as it is, behind a door that adds what moto lacks.

Added here, each checked against botocore's service model before it counts: UpdateEndpoint, inference components, the time
that an endpoint takes and the ways in which it fails, ECR's GetDownloadUrlForLayer, and a registry to push to (`registry`).
Everything else reaches moto byte for byte, but for variants without a model, whose place the first model of the account takes.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
import botocore.session
from botocore.validate import ParamValidator

from deploy.registry import Registry, Reply
from running import free_port

ACCOUNT = "123456789012"
REGION = "us-east-1"
START_LIMIT_S = 60.0
JSON = {"Content-Type": "application/x-amz-json-1.1"}


class StandIn:
    """A context manager; ``environment`` makes boto3 and the scripts talk to it."""

    def __init__(self, log: Path) -> None:
        self.calls: list[str] = []
        self.statuses: dict[str, list[dict[str, str]]] = {}
        self.registry = Registry(f"{ACCOUNT}-auth-token")
        self.components: dict[str, dict[str, Any]] = {}
        self.updates: list[dict[str, Any]] = []
        self._log = log
        self._moto_port = free_port()
        self._own: dict[str, Callable[[dict[str, Any]], Reply]] = {
            "SageMaker.UpdateEndpoint": self._update_endpoint,
            "SageMaker.CreateInferenceComponent": self._create_component,
            "SageMaker.UpdateInferenceComponent": self._update_component,
            "SageMaker.DescribeInferenceComponent": self._describe_component,
            "SageMaker.DeleteInferenceComponent": self._delete_component,
            "SageMaker.ListInferenceComponents": self._list_components,
            "AmazonEC2ContainerRegistry_V20150921.GetDownloadUrlForLayer": self._layer_url,
        }

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(self._moto_port)]
        with self._log.open("wb") as log:
            self._moto = subprocess.Popen(command, stdout=log, stderr=log)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), door(self))
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self._moto_port}/moto-api/", timeout=5).close()
                return self
            except OSError:
                assert self._moto.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, "moto's server does not answer"
                time.sleep(0.1)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._moto.terminate()
        self._moto.wait(10)

    @property
    def url(self) -> str:
        """The one address of every service."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that AWS's tools read."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def client(self, service: str) -> Any:
        """boto3's own client for a service of the stand-in."""
        return boto3.client(
            service, endpoint_url=self.url, region_name=REGION, aws_access_key_id="testing", aws_secret_access_key="testing"
        )

    def reset(self) -> None:
        """An empty account."""
        urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{self._moto_port}/moto-api/reset", method="POST")
        ).close()
        self.calls.clear()
        self.statuses.clear()
        self.components.clear()
        self.updates.clear()

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """One request, from here or from moto."""
        if target.startswith("/v2/"):
            return self._pushed(method, target, headers, body)
        operation = headers.get("X-Amz-Target", "")
        if operation:
            self.calls.append(operation.partition(".")[2])
        if operation in self._own:
            parameters = json.loads(body)
            return invalid(operation, parameters) or self._own[operation](parameters)
        if operation == "SageMaker.ListTags" and ":inference-component/" in json.loads(body)["ResourceArn"]:
            name = json.loads(body)["ResourceArn"].rpartition("/")[2]
            return found({"Tags": self.components[name]["Tags"]})
        if operation == "SageMaker.CreateEndpointConfig":
            body = self._with_models(body)
        reply = self._moto_answer(method, target, headers, body)
        if operation == "SageMaker.DescribeEndpoint" and reply.status == 200:
            return self._in_time(reply)
        if operation.startswith("AmazonEC2ContainerRegistry"):
            return self._at_home(reply)
        return reply

    def _moto_answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self._moto_port, timeout=60)
        try:
            connection.request(method, target, body, {**headers, "Connection": "close"})
            response = connection.getresponse()
            kept = {name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
            return Reply(response.status, kept, response.read())
        finally:
            connection.close()

    def _moto_json(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        client = boto3.client(
            service,
            endpoint_url=f"http://127.0.0.1:{self._moto_port}",
            region_name=REGION,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        answer: dict[str, Any] = getattr(client, operation)(**parameters)
        return answer

    def _in_time(self, reply: Reply) -> Reply:
        described = json.loads(reply.body)
        coming = self.statuses.get(described["EndpointName"], [])
        if coming:
            described |= coming.pop(0) if len(coming) > 1 else coming[0]
        return Reply(200, JSON, json.dumps(described).encode())

    def _with_models(self, body: bytes) -> bytes:
        parameters = json.loads(body)
        for variant in parameters["ProductionVariants"]:
            if "ModelName" not in variant:
                variant["ModelName"] = self._moto_json("sagemaker", "list_models")["Models"][0]["ModelName"]
        return json.dumps(parameters).encode()

    def _update_endpoint(self, parameters: dict[str, Any]) -> Reply:
        name = parameters["EndpointName"]
        self.updates.append(parameters)
        there = self._moto_json("sagemaker", "describe_endpoint", EndpointName=name)
        tags = self._moto_json("sagemaker", "list_tags", ResourceArn=there["EndpointArn"])["Tags"]
        config = parameters["EndpointConfigName"]
        self._moto_json("sagemaker", "describe_endpoint_config", EndpointConfigName=config)
        self._moto_json("sagemaker", "delete_endpoint", EndpointName=name)
        self._moto_json("sagemaker", "create_endpoint", EndpointName=name, EndpointConfigName=config, Tags=tags)
        return found({"EndpointArn": there["EndpointArn"]})

    def _create_component(self, parameters: dict[str, Any]) -> Reply:
        name = parameters["InferenceComponentName"]
        arn = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:inference-component/{name}"
        self.components[name] = {**parameters, "InferenceComponentArn": arn, "InferenceComponentStatus": "InService"}
        return found({"InferenceComponentArn": arn})

    def _update_component(self, parameters: dict[str, Any]) -> Reply:
        name = parameters["InferenceComponentName"]
        self.components[name] |= parameters
        return found({"InferenceComponentArn": self.components[name]["InferenceComponentArn"]})

    def _describe_component(self, parameters: dict[str, Any]) -> Reply:
        name = parameters["InferenceComponentName"]
        if name not in self.components:
            return refused(f"Could not find inference component {name}")
        there = self.components[name]
        times = {"CreationTime": 0, "LastModifiedTime": 0, "EndpointArn": ""}
        runtime = {"DesiredCopyCount": there["RuntimeConfig"]["CopyCount"]}
        return found({**there, **times, "RuntimeConfig": runtime})

    def _delete_component(self, parameters: dict[str, Any]) -> Reply:
        if self.components.pop(parameters["InferenceComponentName"], None) is None:
            return refused("Could not find the inference component")
        return found({})

    def _list_components(self, parameters: dict[str, Any]) -> Reply:
        there = [each for each in self.components.values() if each["EndpointName"] == parameters["EndpointNameEquals"]]
        summaries = [{**each, "CreationTime": 0, "LastModifiedTime": 0, "EndpointArn": ""} for each in there]
        return found({"InferenceComponents": summaries})

    def _layer_url(self, parameters: dict[str, Any]) -> Reply:
        digest = parameters["layerDigest"]
        return found({"downloadUrl": f"{self.url}/signed/{digest}", "layerDigest": digest})

    def _at_home(self, reply: Reply) -> Reply:
        body = reply.body.replace(f"https://{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com".encode(), self.url.encode())
        body = body.replace(f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com".encode(), f"127.0.0.1:{self.port}".encode())
        return Reply(reply.status, {**reply.headers, "Content-Length": str(len(body))}, body)

    def _pushed(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        before = len(self.registry.pushed)
        reply = self.registry.answer(method, target, headers, body)
        for name, tag, media_type in self.registry.pushed[before:]:
            self._moto_json(
                "ecr",
                "put_image",
                repositoryName=name,
                imageManifest=body.decode(),
                imageManifestMediaType=media_type,
                imageTag=tag,
            )
        return reply


HOP_BY_HOP = ("connection", "transfer-encoding", "keep-alive", "content-length")


def found(answer: Mapping[str, Any]) -> Reply:
    """A JSON answer."""
    return Reply(200, JSON, json.dumps(answer).encode())


def refused(message: str) -> Reply:
    """As SageMaker refuses."""
    return Reply(400, JSON, json.dumps({"__type": "ValidationException", "message": message}).encode())


def invalid(operation: str, parameters: dict[str, Any]) -> Reply | None:
    """A refusal where the request does not fit botocore's model."""
    service = "sagemaker" if operation.startswith("SageMaker") else "ecr"
    model = botocore.session.get_session().get_service_model(service)
    report = ParamValidator().validate(parameters, model.operation_model(operation.partition(".")[2]).input_shape)
    return refused(report.generate_report()) if report.has_errors() else None


def door(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    """The HTTP side."""

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.chunks() if "chunked" in self.headers.get("Transfer-Encoding", "") else self.plain()
            if self.path.startswith("/signed/"):
                reply = Reply(200, {}, stand_in.registry.blobs[self.path.removeprefix("/signed/")])
            else:
                headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
                reply = stand_in.answer(self.command, self.path, headers, body)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)

        def plain(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def chunks(self) -> bytes:
            body = bytearray()
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return bytes(body)

        def log_message(self, *_: object) -> None:
            pass

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 -- the server's names

    return Door
