"""The one door to AWS: boto3's clients, which follow AWS_ENDPOINT_URL, and what their errors say."""

from __future__ import annotations

from functools import cache
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

ATTEMPTS = 8
FALLBACK_REGION = "us-east-1"
"""For looking things up in the service's model, which needs a client and asks nobody."""
FAULTS = (BotoCoreError, ClientError, Boto3Error)
CONNECTION_FAULTS = (BotoCoreError,)
"""What says nothing about the object: the way to it broke, or it arrived incomplete."""


@cache
def client(service: str) -> Any:
    """A client whose calls are retried with back-off; threads may share it. Its credentials and region are boto3's usual ones."""
    config = Config(retries={"mode": "standard", "total_max_attempts": ATTEMPTS}, user_agent_extra="torchserve-byoc")
    region = boto3.session.Session().region_name
    return boto3.client(service, config=config, region_name=region or FALLBACK_REGION)


def sentence(error: Exception) -> str:
    """What AWS or the way to it said, in one line."""
    return " ".join(str(error).split())


def code(error: Exception) -> str:
    """AWS's name for the error, or nothing."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def status(error: Exception) -> int:
    """The HTTP status of AWS's answer, or 0."""
    response = getattr(error, "response", None) or {}
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
