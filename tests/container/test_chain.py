"""Two containers of ours behind one another on one host's network, as an inference pipeline has them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from containers import Container, readable
from models.translators import save_marian
from running import Endpoint, listening_ports

RANGE_SIZE = 8
FIRST_RANGE = 23_000
HOST_NETWORK = ("--network", "host")


class Neighbour(Container):
    """A container that shares the host's network, on the port and within the range that the platform gave it."""

    def __init__(self, model: Path, port: int, ports: range, **settings: str) -> None:
        self.port = port
        self.ports = ports
        given = {"SAGEMAKER_BIND_TO_PORT": str(port), "SAGEMAKER_SAFE_PORT_RANGE": f"{ports[0]}-{ports[-1]}"}
        super().__init__(model, {**given, **settings}, HOST_NETWORK, wait=False)

    def _address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def listening(self) -> set[int]:
        """The ports on which any process of the container listens."""
        return listening_ports([pid for pid, _ in self.processes("")])


@dataclass(frozen=True, slots=True)
class Chain:
    """The answer of the first is the request of the second."""

    first: Neighbour
    second: Neighbour

    def invoke(self, body: object) -> tuple[bytes, list[float]]:
        """What went between them, and what came out."""
        between = self.first.invoke(body)
        assert between.status_code == 200, between.text
        last = self.second.invoke(between.content, between.headers["Content-Type"])
        assert last.status_code == 200, last.text
        return between.content, last.json()


def free_ranges(count: int, size: int) -> list[range]:
    """Rows of ports on which nobody listens, one after another."""
    found: list[range] = []
    start = FIRST_RANGE
    while len(found) < count:
        ports = range(start, start + size)
        if all(is_free(port) for port in ports):
            found.append(ports)
        start += size
    return found


def is_free(port: int) -> bool:
    """Whether the port can be bound."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture(scope="module")
def chain(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """A translator and a sentence encoder, started in the same moment."""
    translator = readable(save_marian(tmp_path_factory.mktemp("translator") / "model"))
    one, two = free_ranges(2, RANGE_SIZE)
    with ExitStack() as stack:
        first = stack.enter_context(Neighbour(translator, one[0], one[1:], HF_TASK="translation"))
        second = stack.enter_context(Neighbour(encoder, two[0], two[1:], BYOC_FIELDS='{"translation_text": "inputs"}'))
        for container in (first, second):
            container.wait_until_ready()
        yield Chain(first, second)


def test_the_answer_of_the_first_is_understood_by_the_second(chain: Chain) -> None:
    between, vector = chain.invoke({"inputs": "a fine day", "parameters": {"max_new_tokens": 8}})
    assert between.startswith(b'{"translation_text":')
    alone = chain.second.invoke(json.dumps(json.loads(between)["translation_text"])).json()
    assert vector == pytest.approx(alone, abs=1e-5)
    assert len(vector) == 384


def test_a_list_comes_out_as_a_list_in_its_order(chain: Chain) -> None:
    texts = ["a fine day", "rain on a tin roof", "no"]
    parameters = {"max_new_tokens": 8}
    _, vectors = chain.invoke({"inputs": texts, "parameters": parameters})
    alone = [chain.invoke({"inputs": text, "parameters": parameters})[1] for text in texts]
    assert vectors == [pytest.approx(vector, abs=1e-4) for vector in alone]


def test_both_stay_on_the_ports_that_they_were_given(chain: Chain) -> None:
    for container in (chain.first, chain.second):
        listening = container.listening()
        assert container.port in listening
        assert listening - {container.port} <= set(container.ports)
        assert 8080 not in listening
    assert not chain.first.listening() & chain.second.listening()


def test_only_the_serving_port_is_open_to_others(chain: Chain) -> None:
    address = socket.gethostbyname(socket.gethostname())
    if address.startswith("127."):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            address = probe.getsockname()[0]
    for container in (chain.first, chain.second):
        assert Endpoint(f"http://{address}:{container.port}").ping() == 200
        for port in container.ports:
            with socket.socket() as probe:
                assert probe.connect_ex((address, port)) != 0


def test_a_fault_in_the_first_does_not_stop_the_second(chain: Chain) -> None:
    assert chain.first.invoke({"inputs": "x", "parameters": {"unknown": 1}}).status_code == 400
    assert chain.second.invoke({"translation_text": "rain"}).status_code == 200
