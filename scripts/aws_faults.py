"""What AWS's client raises, as the sentence that a person reads."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

AWS_FAULTS = (ClientError, BotoCoreError)


def sentence(error: ClientError | BotoCoreError) -> str:
    """Which call was refused and why, or that AWS could not be asked at all."""
    if isinstance(error, ClientError):
        said = error.response["Error"]
        return f"AWS refused {error.operation_name}: {said['Message']} ({said['Code']})"
    return f"AWS cannot be asked: {error}"
