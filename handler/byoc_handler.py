"""The handler file inside an archive: TorchServe imports it by name, and it hands on to the package beside it."""

from batch_handler.service import handle

__all__ = ["handle"]
