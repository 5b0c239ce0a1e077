"""The part of an image registry that a push needs, over HTTP on loopback: the registry of the stand-in for ECR.

No registry can be had without pulling an image of one. This speaks the distribution API's version 2 as far as docker push
goes: blobs uploaded in one or more pieces, checked against their digests, and manifests. It wants the password that
GetAuthorizationToken hands out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

USER = "AWS"
BLOB = re.compile(r"/v2/(?P<name>.+)/blobs/(?P<digest>sha256:[0-9a-f]{64})")
UPLOAD = re.compile(r"/v2/(?P<name>.+)/blobs/uploads/(?P<upload>[0-9a-f]*)")
MANIFEST = re.compile(r"/v2/(?P<name>.+)/manifests/(?P<reference>.+)")


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back over HTTP."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Registry:
    """Blobs and manifests by name. ``pushed`` lists (repository, tag, media type) in the order of their coming."""

    password: str
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    pushed: list[tuple[str, str, str]] = field(default_factory=list)
    _uploads: dict[str, bytearray] = field(default_factory=dict)

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """One request of the distribution API."""
        wanted = "Basic " + base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        if headers.get("Authorization") != wanted:
            return Reply(401, {"WWW-Authenticate": 'Basic realm="stand-in"'})
        path = urlsplit(target).path
        if path == "/v2/":
            return Reply(200)
        if found := UPLOAD.fullmatch(path):
            return self._upload(method, found["name"], found["upload"], target, body)
        if found := BLOB.fullmatch(path):
            blob = self.blobs.get(found["digest"])
            return Reply(404) if blob is None else Reply(200, {"Docker-Content-Digest": found["digest"]}, blob)
        if found := MANIFEST.fullmatch(path):
            return self._manifest(method, found["name"], found["reference"], headers, body)
        return Reply(404)

    def _upload(self, method: str, name: str, upload: str, target: str, body: bytes) -> Reply:
        if method == "POST":
            upload = uuid.uuid4().hex
            self._uploads[upload] = bytearray()
        if upload not in self._uploads:
            return Reply(404)
        self._uploads[upload] += body
        place = {"Location": f"/v2/{name}/blobs/uploads/{upload}", "Range": f"0-{max(0, len(self._uploads[upload]) - 1)}"}
        if method != "PUT":
            return Reply(202, place)
        (digest,) = parse_qs(urlsplit(target).query)["digest"]
        content = bytes(self._uploads.pop(upload))
        if digest_of(content) != digest:
            return Reply(400)
        self.blobs[digest] = content
        return Reply(201, {"Docker-Content-Digest": digest, "Location": f"/v2/{name}/blobs/{digest}"})

    def _manifest(self, method: str, name: str, reference: str, headers: Mapping[str, str], body: bytes) -> Reply:
        if method == "PUT":
            media_type = headers.get("Content-Type", "")
            referred = json.loads(body)
            parts = [referred["config"], *referred["layers"]] if "layers" in referred else []
            if any(part["digest"] not in self.blobs for part in parts):
                return Reply(400)
            self.manifests[name, reference] = self.manifests[name, digest_of(body)] = (media_type, body)
            self.pushed.append((name, reference, media_type))
            return Reply(201, {"Docker-Content-Digest": digest_of(body)})
        if (name, reference) not in self.manifests:
            return Reply(404)
        media_type, content = self.manifests[name, reference]
        return Reply(200, {"Content-Type": media_type, "Docker-Content-Digest": digest_of(content)}, content)


def digest_of(content: bytes) -> str:
    """As registries name content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
