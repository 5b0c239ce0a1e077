"""Which format a body is in and which one the answer gets, by RFC 9110 (sections 8.3, 8.4 and 12.5.1).

Owns Content-Type, Content-Encoding, charset and Accept; what bytes mean belongs to `formats`.
"""

from __future__ import annotations

import codecs
import encodings
import encodings.aliases
import pkgutil
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass

from sagemaker_inference import content_types
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header, parse_options_header

from batch_handler.errors import ErrorType, ServiceError, invalid_request, quote
from batch_handler.formats import BY_MEDIA_TYPE, FORMATS, Format
from batch_handler.settings import MIB

JSON: str = content_types.JSON
TEXT_CHARSETS = re.compile(r"utf-?(8|16|32)|ascii|iso8859|cp\d|koi8|gb|big5|euc|shift_?jis|iso2022")
CODECS = frozenset({*encodings.aliases.aliases, *(module.name for module in pkgutil.iter_modules(encodings.__path__))})
INFLATE_WINDOW = 4_096
LONGEST_ACCEPT = 4_096
"""Characters of Accept that are read, up to the last whole range: a client's has some hundreds, and 64 KiB take 0.3 s."""
SHORT_WEIGHT = re.compile(r"(;\s*q=)(?=\.\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Choice:
    """A format together with the name by which the caller knows it."""

    format: Format
    media_type: str


DEFAULT = Choice(BY_MEDIA_TYPE[JSON], JSON)


def request_choice(content_type: str | None, holds: Collection[str]) -> tuple[Choice, str]:
    """The format of a body, as the type's parameters narrow it, and its charset. A body without Content-Type is JSON.

    Raises ServiceError (415) for a type that is unknown, or whose records the task cannot take (`holds`).
    """
    media_type, parameters = parse_options_header(content_type) if content_type else (JSON, {})
    media_type = media_type.lower()
    found = BY_MEDIA_TYPE.get(media_type)
    if found is None or not found.suits(holds):
        readable = ", ".join(form.media_types[0] for form in FORMATS if form.suits(holds))
        message = f"the content type {quote(media_type)} cannot be read by this model: send {readable}"
        raise ServiceError(ErrorType.UNSUPPORTED_MEDIA_TYPE, message)
    return Choice(found.announced(parameters), media_type), parameters.get("charset", "utf-8")


def response_choice(accept: str | None, default: str | None, own: Choice, writes: Collection[str]) -> Choice:
    """The one format of the answer.

    `accept` decides; where it leaves the choice open, `default` (SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT), then the
    request's own format, then JSON. `writes` names the formats that can carry the task's results.
    Raises ServiceError (406) when none is acceptable.
    """
    offers = [Choice(form, name) for form in FORMATS if form.name in writes for name in form.media_types]
    preferred = [default or "", own.media_type, JSON]
    offers.sort(key=lambda offer: preferred.index(offer.media_type) if offer.media_type in preferred else len(preferred))
    if not accept or not accept.strip():
        return offers[0]
    accepted = _without_parameters(accept)
    best = max(offers, key=lambda offer: accepted.quality(offer.media_type))
    if accepted.quality(best.media_type) <= 0:
        writable = ", ".join(sorted({offer.format.media_types[0] for offer in offers}))
        raise ServiceError(ErrorType.NOT_ACCEPTABLE, f"no answer can be written as {quote(accept)}: accept {writable}")
    return best


def media_type(content_type: str) -> tuple[str, str]:
    """The type in lower case, without parameters, and the charset that it names (UTF-8 where it names none)."""
    name, parameters = parse_options_header(content_type)
    return name.lower(), parameters.get("charset", "utf-8")


def preferred(accept: str, default: str) -> str:
    """One type out of several media ranges, where nobody knows what can be written: `default` where it is acceptable,
    else the first of the most wanted that is no wildcard.
    """
    accepted = _without_parameters(accept)
    if accepted.quality(default.partition(";")[0].strip()) > 0:
        return default
    named = [(quality, name) for name, quality in accepted if "/" in name and "*" not in name and quality > 0]
    return max(named, key=lambda pair: pair[0])[1] if named else default


def _without_parameters(accept: str) -> MIMEAccept:
    """Media ranges with their weights; parameters such as charset do not narrow our only form of each type.

    Java's own client sends ``*; q=.2``, which is meant as ``*/*;q=0.2``.
    """
    if len(accept) > LONGEST_ACCEPT:
        accept = accept[:LONGEST_ACCEPT].rpartition(",")[0]
    ranges = parse_accept_header(SHORT_WEIGHT.sub(r"\g<1>0", accept), MIMEAccept)
    names = ((value.partition(";")[0].strip(), quality) for value, quality in ranges)
    return MIMEAccept([("*/*" if name == "*" else name, quality) for name, quality in names])


def content(body: bytes | bytearray, encoding: str | None, limit: int) -> bytes:
    """The body without its content coding, at most `limit` bytes.

    Raises ServiceError: 400 for an empty body or a broken gzip stream, 413 beyond the limit, 415 for another coding.
    """
    coding = (encoding or "identity").strip().lower()
    if coding in ("gzip", "x-gzip"):
        plain = _inflated(bytes(body), limit)
    elif coding in ("identity", ""):
        plain = bytes(body)
    else:
        message = f"the content encoding {quote(coding)} cannot be read: send gzip or none"
        raise ServiceError(ErrorType.UNSUPPORTED_MEDIA_TYPE, message, headers={"Accept-Encoding": "gzip"})
    if not plain:
        raise invalid_request("the body is empty: send at least one record")
    return plain


def _inflated(body: bytes, limit: int) -> bytes:
    """All members of a gzip stream (RFC 1952), stopping as soon as the limit is passed."""
    pieces: list[bytes] = []
    room = limit + 1
    member = zlib.decompressobj(wbits=31)
    position = 0
    try:
        while position < len(body):
            if member.eof:
                member = zlib.decompressobj(wbits=31)
            window = body[position : position + INFLATE_WINDOW]  # a member hands back what follows it: keep that short
            piece = member.decompress(window, room)
            pieces.append(piece)
            position += len(window) - len(member.unused_data) - len(member.unconsumed_tail)
            room -= len(piece)
            if room <= 0:
                megabytes = limit // MIB
                message = f"the body inflates to more than the limit of {megabytes} MB (SAGEMAKER_MAX_PAYLOAD_IN_MB)"
                raise ServiceError(ErrorType.PAYLOAD_TOO_LARGE, message)
        if not member.eof:
            raise zlib.error
    except zlib.error:
        raise invalid_request("the body is not a whole gzip stream, though its Content-Encoding says so") from None
    return b"".join(pieces)


def utf8(body: bytes, charset: str) -> bytes:
    """The body as UTF-8. Raises ServiceError: 415 for a charset that is unknown, 400 for bytes that are not in it."""
    name = _codec(charset)
    if not TEXT_CHARSETS.match(name):
        message = f"the charset {quote(charset)} cannot be read: send utf-8"
        raise ServiceError(ErrorType.UNSUPPORTED_MEDIA_TYPE, message)
    if name in ("utf-8", "ascii"):
        return body
    return _decoded(body, name).encode("utf-8")


def _codec(charset: str) -> str:
    """Python's name for a charset, or nothing. Python remembers every spelling that it is asked for, unknown ones
    included, and for ever: it is asked for one spelling of the known ones.
    """
    spelled = encodings.normalize_encoding(charset).lower()
    try:
        return codecs.lookup(spelled).name if spelled in CODECS else ""
    except LookupError:  # other systems' codecs
        return ""


def text(body: bytes, charset: str) -> str:
    """The body as text, without a byte order mark. Raises ServiceError as `utf8` does."""
    return _decoded(utf8(body, charset), "utf-8").removeprefix("\ufeff")


def _decoded(body: bytes, name: str) -> str:
    try:
        return body.decode(name)
    except UnicodeError:
        raise invalid_request(f"the body is not {name} text, though its Content-Type says so") from None
