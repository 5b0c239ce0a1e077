"""Where calls go: a URL, or an Amazon SageMaker endpoint by its name with every call signed (Signature Version 4)."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit, urlunsplit

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError

from .errors import LoadTestError

SERVICE = "sagemaker-runtime"
INVOCATIONS = "/invocations"
METRICS = "/metrics"

Sign = Callable[[bytes, Mapping[str, str]], Mapping[str, str]]
"""A body and its headers → all headers to send."""


@dataclass(frozen=True, slots=True)
class Target:
    """An address and what goes along with every call. ``region`` is set for an endpoint, whose calls are signed."""

    name: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    region: str | None = None

    @property
    def local(self) -> bool:
        """Whether the server shares this machine, so that its CPUs are the ones seen here."""
        host = urlsplit(self.url).hostname or ""
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    @property
    def metrics_url(self) -> str | None:
        """Prometheus text on the same port; an endpoint does not let it through."""
        parts = urlsplit(self.url)
        return None if self.region else urlunsplit((parts.scheme, parts.netloc, METRICS, "", ""))


def find(name: str, headers: Sequence[tuple[str, str]], region: str | None = None) -> Target:
    """A target from what was typed: ``http://host:port`` (``/invocations`` is added), a whole URL, or an endpoint's name.

    Raises LoadTestError.
    """
    if "://" not in name:
        return _endpoint(name, headers, region)
    parts = urlsplit(name)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LoadTestError(f"{name!r} is no address to call: use http://host:port, https://… or an endpoint's name")
    path = parts.path if parts.path.strip("/") else INVOCATIONS
    return Target(name, urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")), tuple(headers))


def signer(target: Target) -> Sign:
    """What makes the headers of a call. Credentials are looked up once and renewed by boto3 when they expire."""
    fixed = dict(target.headers)
    if target.region is None:
        return lambda _, headers: {**fixed, **headers}
    session = boto3.Session(region_name=target.region)
    credentials = session.get_credentials()
    signing_name = session.client(SERVICE).meta.service_model.signing_name

    def sign(body: bytes, headers: Mapping[str, str]) -> Mapping[str, str]:
        request = AWSRequest("POST", target.url, data=body, headers={**fixed, **headers})
        SigV4Auth(credentials.get_frozen_credentials(), signing_name, target.region).add_auth(request)
        return dict(request.headers.items())

    return sign


def _endpoint(name: str, headers: Sequence[tuple[str, str]], region: str | None) -> Target:
    try:
        session = boto3.Session(region_name=region)
        if not session.region_name:
            raise LoadTestError(f"the region of endpoint {name} is not known: pass --region or set AWS_DEFAULT_REGION")
        if session.get_credentials() is None:
            raise LoadTestError(f"endpoint {name} wants signed calls and no AWS credentials were found: set a profile or a role")
        address = session.client(SERVICE).meta.endpoint_url
    except BotoCoreError as error:
        raise LoadTestError(f"endpoint {name} cannot be called: {error}") from None
    return Target(name, f"{address}/endpoints/{quote(name, safe='')}{INVOCATIONS}", tuple(headers), session.region_name)
