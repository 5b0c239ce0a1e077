"""Nobody gets in: what listens, what answers, what is written, what the processes may still do, what is told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers import UNLOCKED, Container, docker

SECRETS = {"AWS_SECRET_ACCESS_KEY": "kettle-secret-1", "DATABASE_PASSWORD": "kettle-secret-2", "HF_TOKEN": "kettle-secret-3"}
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
# Every URL pattern in the handlers of TorchServe 0.12: inference, management, KServe 1 and 2, workflows, metrics, tokens.
TORCHSERVE_ROUTES = (
    *("/", "/api-description", "/models", "/models/model", "/models/model/1.0", "/models/model/1.0/set-default"),
    *("/predictions/model", "/predictions/model/1.0", "/explanations/model", "/explanations/model/1.0"),
    *("/workflows", "/workflows/model", "/wfpredict/model", "/token", "/token?type=management"),
    *("/v1", "/v1/models/model", "/v1/models/model:predict", "/v1/models/model:explain"),
    *("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/model", "/v2/models/model/infer", "/v2/models/model/explain"),
    *("/model", "/model/1.0", "/ping/", "/invocations/", "/invocations/model", "/metrics/", "/.well-known/security.txt"),
    *("//invocations", "/%69nvocations", "/ping/../models", "/models?url=file:///opt/ml/model", "/?model_name=model"),
)
TELL_TALE = re.compile(r"netty|torchserve|pytorch|java|python|log4j|\b0\.12\.\d|/opt/|Traceback|\bat \w+\.\w+\(", re.IGNORECASE)
OWNED_BY_DOCKER = {"/opt", "/opt/ml", "/opt/ml/model"}
ASK_MANAGEMENT = """
import urllib.error, urllib.request
request = urllib.request.Request("http://127.0.0.1:8081/models?url=file:///opt/ml/model", method="POST")
try:
    print(urllib.request.urlopen(request, timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
OPEN_TO_OTHERS = """
import os, stat
for entry in os.scandir("/tmp"):
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_IMODE(mode) & 0o077:
        print(entry.path, oct(mode))
"""


def listening(container: Container) -> tuple[set[int], set[int]]:
    """The TCP ports that listen for others, and those on loopback."""
    table = container.execute("cat", "/proc/net/tcp", "/proc/net/tcp6")
    rows = re.findall(r"^\s*\d+: (\S+):([0-9A-F]{4}) \S+ 0A", table, re.MULTILINE)
    ports = [(address in LOOPBACK, int(port, 16)) for address, port in rows]
    return {port for local, port in ports if not local}, {port for local, port in ports if local}


def rights(container: Container) -> list[dict[str, str]]:
    """What the kernel says of each process of ours: uids, capabilities, no-new-privileges, seccomp."""
    code = (
        "import glob, json; rows = []\n"
        "for path in glob.glob('/proc/[0-9]*/status'):\n"
        "    try: rows.append(dict(line.split(':', 1) for line in open(path).read().splitlines()))\n"
        "    except OSError: pass\n"
        "print(json.dumps(rows))"
    )
    found: list[dict[str, str]] = json.loads(container.python(code))
    return [{name: value.strip() for name, value in row.items()} for row in found]


@pytest.fixture(scope="module")
def plain(encoder: Path) -> Iterator[Container]:
    """As `docker run` starts it, with secrets about and the log at its most talkative."""
    with Container(encoder, {**SECRETS, "SAGEMAKER_CONTAINER_LOG_LEVEL": "DEBUG"}, locks=UNLOCKED) as container:
        container.invoke({"inputs": "a quiet kettle"})
        container.invoke("{", "application/json")
        yield container


@pytest.fixture(scope="module")
def hardened(encoder: Path) -> Iterator[Container]:
    """Every lock that docker offers."""
    with Container(encoder, options=("--pids-limit", "256")) as container:
        yield container


def test_only_the_serving_port_is_open_and_only_management_is_on_loopback(plain: Container) -> None:
    assert listening(plain) == ({8080}, {8081})


def test_the_ports_that_sagemaker_names_are_the_only_ones(encoder: Path) -> None:
    settings = {"SAGEMAKER_BIND_TO_PORT": "8123", "SAGEMAKER_SAFE_PORT_RANGE": "21000-21010"}
    with Container(encoder, settings, options=("--network", "none"), wait=True) as container:
        outside, loopback = listening(container)
    assert outside == {8123}
    assert len(loopback) == 1
    assert loopback <= set(range(21_000, 21_011))


def test_management_registers_nothing_even_from_inside(plain: Container) -> None:
    assert int(plain.python(ASK_MANAGEMENT)) in (403, 404, 405)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_no_route_of_torchserve_is_there(plain: Container, method: str) -> None:
    answers = {route: plain.http.request(method, route, content=b"") for route in TORCHSERVE_ROUTES}
    assert {route: answer.status_code for route, answer in answers.items() if answer.status_code != 404} == {}


def test_a_query_changes_neither_model_nor_answer(plain: Container) -> None:
    body = json.dumps({"inputs": "a quiet kettle"})
    kind = {"Content-Type": "application/json"}
    asked = plain.http.post("/invocations?model_name=other&body=x&url=file:///etc/passwd", content=body, headers=kind)
    assert asked.status_code == 200
    assert asked.json() == pytest.approx(plain.invoke({"inputs": "a quiet kettle"}).json(), abs=1e-5)


def test_no_answer_tells_what_serves(plain: Container) -> None:
    answers = [
        plain.http.get("/ping"),
        plain.http.get("/execution-parameters"),
        plain.http.get("/nothing"),
        plain.http.options("/invocations"),
        plain.http.get("/invocations"),
        plain.http.get("/" + "x" * 10_000),
        plain.http.get("/ping", headers={"X-Long": "x" * 80_000}),
        plain.invoke("{"),
        plain.invoke({"inputs": "a", "parameters": {"unknown": 1}}),
        plain.invoke("x", "application/nothing"),
        plain.invoke({"inputs": "a"}, Accept="image/png"),
        plain.invoke(b"\x1f\x8bnot gzip", Content_Encoding="gzip"),
        plain.invoke({"inputs": None}),
        plain.invoke(b" " * (26 << 20)),
    ]
    told = [f"{answer.headers} {answer.text if answer.status_code >= 400 else ''}" for answer in answers]
    assert [text for text in told if TELL_TALE.search(text)] == []
    assert [answer.status_code for answer in answers if answer.status_code >= 500] == []
    assert not any({"server", "x-powered-by", "via"} & set(answer.headers) for answer in answers)


def test_no_secret_of_the_environment_is_told(plain: Container) -> None:
    told = plain.logs() + plain.http.get("/metrics").text + plain.invoke("{").text
    assert [name for name, secret in SECRETS.items() if secret in told] == []


def test_nothing_is_written_but_in_tmp(plain: Container) -> None:
    changed = [line.split(" ", 1)[1] for line in docker("diff", plain.name).stdout.splitlines()]
    elsewhere = [path for path in changed if not (path == "/tmp" or path.startswith("/tmp/")) and path not in OWNED_BY_DOCKER]
    assert elsewhere == []


def test_what_lies_in_tmp_is_open_to_nobody_else(plain: Container) -> None:
    assert plain.python(OPEN_TO_OTHERS) == ""


def test_java_and_workers_are_nobody_and_may_nothing(plain: Container) -> None:
    serving = [row for row in rights(plain) if row["Uid"].split()[0] == "10001"]
    assert len(serving) >= 2
    assert {row["CapEff"] for row in serving} == {"0" * 16}
    assert {row["Seccomp"] for row in serving} == {"2"}


def test_under_every_lock_it_serves_and_no_process_may_anything(hardened: Container) -> None:
    assert hardened.invoke({"inputs": "a quiet kettle"}).status_code == 200
    found = rights(hardened)
    for name, value in {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}.items():
        assert {row[name] for row in found} == {value}, name
    assert {row["Uid"].split()[0] for row in found} == {"12345"}
