"""Many clients, and bad ones, at the real image: neighbours keep their own right answers, and a full queue says so."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from containers import Container, docker
from crowd import Calls, Sight, besiege, latencies_of_ping

IDLE = 5_000
CPUS = ("--cpus", "2")
PING_LIMIT_S = 0.5

pytestmark = pytest.mark.alone


class Reachable(Container):
    """A container that is called at its own address, because Docker's proxy for published ports has limits of its own."""

    def _address(self) -> str:
        address = docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", self.name).stdout.strip()
        return f"http://{address}:8080"


def connect(container: Container) -> socket.socket:
    """A plain connection to the container."""
    place = urlsplit(str(container.base_url))
    return socket.create_connection((place.hostname, place.port or 80), timeout=30)


@pytest.fixture(scope="module")
def container(encoder: Path) -> Iterator[Reachable]:
    """One container for all that should leave no trace."""
    with Reachable(encoder, options=CPUS) as running:
        yield running


@pytest.fixture(scope="module")
def calls(container: Reachable) -> Calls:
    """Calls with known answers."""
    return Calls(container, texts=120)


def assert_untroubled(sight: Sight) -> None:
    """Everybody got his own right answer or his own refusal."""
    assert not sight.wrong, sight.wrong[:5]
    assert sight.answers > 0


def test_hundreds_of_clients_get_their_own_answers_while_ping_stays_quick(container: Reachable, calls: Calls) -> None:
    seconds = 15.0
    with ThreadPoolExecutor() as pool:
        pings = pool.submit(latencies_of_ping, container.base_url, seconds)
        sight = besiege(container.base_url, calls, clients=512, seconds=seconds)
    assert_untroubled(sight)
    assert {status for status in sight.statuses if status >= 500} == set()
    assert sight.statuses[400] > 0, "the bad bodies were among them"
    assert sorted(pings.result())[-2] < PING_LIMIT_S
    assert sight.quantile(0.99) < 2.5 * 512 / (sight.answers / sight.seconds), "nobody waits for more than who was before him"


def test_a_full_queue_is_an_honest_503_and_the_answered_wait_no_longer_than_the_queue(encoder: Path) -> None:
    places = 24
    with Reachable(encoder, {"BYOC_QUEUE_SIZE": str(places)}, CPUS) as container:
        calls = Calls(container, texts=60)
        sight = besiege(container.base_url, calls, clients=256, seconds=12.0, refusable=True)
        assert_untroubled(sight)
        assert sight.statuses[503] > 0
        assert container.ping() == 200
        rate = len(sight.latencies) / sight.seconds
        batches_inside = 3 * 32
        assert sight.quantile(0.99) < 3 * (places + batches_inside) / rate
        again = besiege(container.base_url, calls, clients=4, seconds=2.0)
        assert_untroubled(again)
        assert not again.statuses[503], "once the crowd is gone, nobody is refused"


def test_thousands_of_idle_connections_trouble_nobody(container: Reachable, calls: Calls) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * IDLE), most))
    idle = [connect(container) for _ in range(IDLE)]
    try:
        assert_untroubled(besiege(container.base_url, calls, clients=16, seconds=4.0))
        assert container.ping() == 200
    finally:
        for connection in idle:
            connection.close()


def test_clients_that_send_a_byte_a_second_trouble_nobody(container: Reachable, calls: Calls) -> None:
    body = b'{"inputs": "a slow kettle"}'
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ended = threading.Event()
    slow = [connect(container) for _ in range(64)]

    def drip() -> None:
        for place in range(len(head) // 2):
            for connection in slow:
                connection.sendall(head.encode()[place : place + 1])
            if ended.wait(1.0):
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert_untroubled(besiege(container.base_url, calls, clients=16, seconds=5.0))
    finally:
        ended.set()
        dripping.join()
        for connection in slow:
            connection.close()


def test_work_that_was_left_behind_is_not_done(container: Reachable, calls: Calls) -> None:
    """800 requests of 20 records are 16,000 records, a minute and more of work; all but what was begun is dropped."""
    text = '"' + "a kettle that nobody waits for " * 3 + '"'
    body = ('{"inputs": [' + ",".join([text] * 20) + "]}").encode()
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    before = container.metrics()
    leaving = []
    for _ in range(800):
        connection = connect(container)
        connection.sendall(head.encode() + body)
        leaving.append(connection)
    for connection in leaving:
        connection.close()
    began = time.monotonic()
    assert container.invoke({"inputs": "a patient kettle"}).status_code == 200
    waited = time.monotonic() - began
    assert waited < 10.0
    done = sum(value - before.get(name, 0) for name, value in container.metrics().items() if name.startswith("byoc_tokens_total"))
    assert done < 0.5 * 16_000 * 20
    assert_untroubled(besiege(container.base_url, calls, clients=16, seconds=2.0))


def test_clients_that_hang_up_in_the_middle_trouble_nobody(container: Reachable, calls: Calls) -> None:
    body = b'{"inputs": "half a kettle"}'
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    message = head.encode() + body
    ended = threading.Event()

    def hang_up() -> None:
        place = 0
        while not ended.is_set():
            place = (place + 7) % len(message)
            with connect(container) as connection:
                connection.sendall(message[:place])

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(hang_up)
        try:
            assert_untroubled(besiege(container.base_url, calls, clients=16, seconds=5.0))
        finally:
            ended.set()
    deadline = time.monotonic() + 10
    while sum(value for name, value in container.metrics().items() if name.startswith("byoc_inflight_requests")) > 0:
        assert time.monotonic() < deadline, "calls that were hung up on are still counted as in flight"
        time.sleep(0.1)
