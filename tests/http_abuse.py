"""Requests that no honest client sends, as bytes, and what becomes of each: by RFC 9112 where it says so, else by our choice.

``REFUSED`` ends the connection, because nobody can tell what follows; ``ANSWERED`` is odd, but has one meaning.
"""

from __future__ import annotations

from raw_http import BODY, CHUNKED, CHUNKED_BODY, LENGTH, PING, call

CHUNK = b"f\r\n" + BODY
LAST = b"0\r\n\r\n"


def head(line: bytes, *headers: bytes) -> bytes:
    """Any request line with any header lines; the blank line follows."""
    return b"".join(one + b"\r\n" for one in (line, *headers)) + b"\r\n"


def ping(*headers: bytes) -> bytes:
    """A GET /ping with these header lines beside Host."""
    return head(b"GET /ping HTTP/1.1", b"Host: a", *headers)


def chunks(body: bytes) -> bytes:
    """A chunked call with this body."""
    return call(CHUNKED, body=body)


# What is sent → the status that refuses it. The connection ends, whatever follows.
REFUSED: dict[str, tuple[bytes, int]] = {
    # sizes of chunks (RFC 9112, section 7.1)
    "a chunk size with a plus": (chunks(b"+f\r\n" + BODY + b"\r\n" + LAST), 400),
    "a last chunk of minus nothing": (chunks(CHUNK + b"\r\n-0\r\n\r\n"), 400),
    "a chunk size in hexadecimal notation": (chunks(b"0xf\r\n" + BODY + b"\r\n" + LAST), 400),
    "a chunk size with blanks before it": (chunks(b" f\r\n" + BODY + b"\r\n" + LAST), 400),
    "a chunk size with blanks behind it": (chunks(b"f \r\n" + BODY + b"\r\n" + LAST), 400),
    "a chunk size with words behind it": (chunks(b"f x\r\n" + BODY + b"\r\n" + LAST), 400),
    "a chunk size with a comma": (chunks(b"f,\r\n" + BODY + b"\r\n" + LAST), 400),
    "a chunk size with an underscore": (chunks(b"0_f\r\n" + BODY + b"\r\n" + LAST), 400),
    "a chunk size in other digits": (chunks(b"\xef\xbc\x91\xef\xbc\x95\r\n" + BODY + b"\r\n" + LAST), 400),
    "no chunk size": (chunks(b"\r\n" + BODY + b"\r\n" + LAST), 400),
    "a chunk size of nine digits": (chunks(b"100000000f\r\n" + BODY + b"\r\n" + LAST), 400),
    "a chunk size beyond every number": (chunks(b"f" * 64 + b"\r\n" + BODY), 400),
    "a chunk shorter than its data": (chunks(b"5\r\n" + BODY + b"\r\n" + LAST), 400),
    "rubbish between a chunk and its end": (chunks(CHUNK + b"rubbish\r\n" + LAST), 400),
    "a chunk without its line end": (chunks(CHUNK + LAST), 400),
    "a chunk size that ends with LF": (chunks(b"f\n" + BODY + b"\r\n" + LAST), 400),
    "a chunk that ends with LF": (chunks(CHUNK + b"\n" + LAST), 400),
    "a chunk size that ends with CR CR LF": (chunks(b"f\r\r\n" + BODY + b"\r\n" + LAST), 400),
    "a NUL in an extension": (chunks(b"f;a\0\r\n" + BODY + b"\r\n" + LAST), 400),
    "an LF in an extension": (chunks(b"f;a\n" + BODY + b"\r\n" + LAST), 400),
    "a trailer without a colon": (chunks(CHUNK + b"\r\n0\r\nrubbish\r\n\r\n"), 400),
    "a trailer with a blank before its colon": (chunks(CHUNK + b"\r\n0\r\na : b\r\n\r\n"), 400),
    "extensions that hold what no body counts": (chunks((b"1;" + b"a" * 8_000 + b"\r\n1\r\n") * 9 + LAST), 400),
    "sizes of nothing but zeros": (chunks((b"0" * 8_000 + b"1\r\n1\r\n") * 9 + LAST), 400),
    "an endless trailer": (chunks(CHUNK + b"\r\n0\r\n" + b"a: b\r\n" * 20_000), 431),
    # two lengths, or one that others may read otherwise (RFC 9112, sections 6.1 to 6.3)
    "two equal lengths": (call(LENGTH, LENGTH, body=BODY), 400),
    "two lengths in one header": (call(b"Content-Length: 15, 15", body=BODY), 400),
    "a length with a plus": (call(b"Content-Length: +15", body=BODY), 400),
    "a length with a point": (call(b"Content-Length: 15.0", body=BODY), 400),
    "a length in hexadecimal notation": (call(b"Content-Length: 0xf", body=BODY), 400),
    "a length beyond every number": (call(b"Content-Length: 99999999999999999999", body=BODY), 400),
    "an empty length": (call(b"Content-Length:", body=BODY), 400),
    "a length in other digits": (call(b"Content-Length: \xef\xbc\x91\xef\xbc\x95", body=BODY), 400),
    "a coding behind a tab that is no blank": (call(b"Transfer-Encoding: \x0bchunked", body=CHUNKED_BODY), 400),
    "a coding with a NUL": (call(b"Transfer-Encoding: chunked\0", body=CHUNKED_BODY), 400),
    "a coding in quotes": (call(b'Transfer-Encoding: "chunked"', body=CHUNKED_BODY), 400),
    "a coding with a parameter": (call(b"Transfer-Encoding: chunked;a=b", body=CHUNKED_BODY), 400),
    "a coding and a comma": (call(b"Transfer-Encoding: chunked,", body=CHUNKED_BODY), 400),
    "a coding behind a blank name": (call(b"Transfer-Encoding : chunked", body=CHUNKED_BODY), 400),
    "a coding behind a tab in its name": (call(b"Transfer-Encoding\t: chunked", body=CHUNKED_BODY), 400),
    "a coding with a carriage return in its name": (call(b"Transfer-\rEncoding: chunked", body=CHUNKED_BODY), 400),
    "a coding with a carriage return in its value": (call(b"Transfer-Encoding: chun\rked", body=CHUNKED_BODY), 400),
    "a coding behind an LF": (call(b"X: a\nTransfer-Encoding: chunked", LENGTH, body=CHUNKED_BODY), 400),
    "a coding behind a carriage return": (call(b"X: a\rTransfer-Encoding: chunked", LENGTH, body=CHUNKED_BODY), 400),
    "a coding beside a length of nothing": (call(b"Content-Length: 0", CHUNKED, body=CHUNKED_BODY), 400),
    "a length folded": (call(b"Content-Length:\r\n 15", body=BODY), 400),
    "a body that only Netty would see": (ping(b"Sec-WebSocket-Key1: 1", b"Sec-WebSocket-Key2: 2") + b"12345678", 400),
    # lines and names (RFC 9112, sections 2 to 5)
    "a host with a path": (head(b"GET /ping HTTP/1.1", b"Host: a/b"), 400),
    "a host with a blank": (head(b"GET /ping HTTP/1.1", b"Host: a b"), 400),
    "a host with a name before it": (head(b"GET /ping HTTP/1.1", b"Host: user@a"), 400),
    "a host in other letters": (head(b"GET /ping HTTP/1.1", "Host: ä".encode()), 400),
    "lines that end with LF": (b"GET /ping HTTP/1.1\nHost: a\n\n", 400),
    "one header that ends with LF": (b"GET /ping HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
    "a head that ends with LF": (b"GET /ping HTTP/1.1\r\nHost: a\r\n\n", 400),
    "a header on two lines": (ping(b"X: a\r\n b"), 400),
    "a blank before the first header": (b"GET /ping HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    "a header without a colon": (ping(b"rubbish"), 400),
    "a header without a name": (ping(b": b"), 400),
    "a name with a blank": (ping(b"a b: c"), 400),
    "a name with a NUL": (ping(b"a\0: c"), 400),
    "a name with a bracket": (ping(b"a(b): c"), 400),
    "a name with an umlaut": (ping("ä: c".encode()), 400),
    "a name with a control character": (ping(b"a\x01: c"), 400),
    "a value with a NUL": (ping(b"a: b\0c"), 400),
    "a value with a bell": (ping(b"a: b\x07c"), 400),
    "a value with a delete": (ping(b"a: b\x7fc"), 400),
    "a value with a carriage return": (ping(b"a: b\rc"), 400),
    "a version in small letters": (head(b"GET /ping http/1.1", b"Host: a"), 400),
    "a version with more digits": (head(b"GET /ping HTTP/1.10", b"Host: a"), 400),
    "a version of one digit": (head(b"GET /ping HTTP/1", b"Host: a"), 400),
    "no version": (b"GET /ping\r\n\r\n", 400),
    "a blank behind the version": (head(b"GET /ping HTTP/1.1 ", b"Host: a"), 400),
    "two blanks in the request line": (head(b"GET  /ping HTTP/1.1", b"Host: a"), 400),
    "a tab in the request line": (head(b"GET\t/ping\tHTTP/1.1", b"Host: a"), 400),
    "a blank in the target": (head(b"GET /pi ng HTTP/1.1", b"Host: a"), 400),
    "a control character in the target": (head(b"GET /ping\x01 HTTP/1.1", b"Host: a"), 400),
    "an umlaut in the target": (head("GET /ä HTTP/1.1".encode(), b"Host: a"), 400),
    "a blank before the method": (head(b" GET /ping HTTP/1.1", b"Host: a"), 400),
    "a control character before the method": (head(b"\x01GET /ping HTTP/1.1", b"Host: a"), 400),
    "a method with brackets": (head(b"G[E]T /ping HTTP/1.1", b"Host: a"), 400),
    "an LF before the method": (b"\n" + PING, 400),
    "binary": (bytes(range(255, -1, -1)), 400),
    # sizes
    "a request line over its limit": (head(b"GET /" + b"a" * 9_000 + b" HTTP/1.1", b"Host: a"), 414),
    "a method over its limit": (head(b"G" * 9_000 + b" / HTTP/1.1", b"Host: a"), 414),
    "headers over their limit": (ping(b"a: " + b"b" * 70_000), 431),
    "a name over its limit": (ping(b"a" * 70_000 + b": b"), 431),
    "more headers than any client sends": (ping(*[b"a: b"] * 300), 431),
    # other protocols, and what this one has no more
    "a TLS hello": (bytes.fromhex("1603010200010001fc0303") + b"\x5a" * 502, 400),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", 505),
    "HTTP/0.9": (b"GET /\r\n", 400),
    "HTTP/3.0": (head(b"GET /ping HTTP/3.0", b"Host: a"), 505),
    "RTSP": (head(b"OPTIONS * RTSP/1.0", b"CSeq: 1"), 400),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", 400),
    "an expectation of HTTP/1.1 that nobody meets": (call(LENGTH, b"Expect: 200-maybe"), 417),
    "two expectations": (call(LENGTH, b"Expect: 100-continue", b"Expect: a"), 417),
}

# What is sent → the status of its answer. The connection goes on.
ANSWERED: dict[str, tuple[bytes, int]] = {
    "a chunk size with zeros before it": (chunks(b"0000000f\r\n" + BODY + b"\r\n000\r\n\r\n"), 200),
    "an extension behind a blank": (chunks(b'f ;a="b"\r\n' + BODY + b"\r\n0;c\r\n\r\n"), 200),
    "chunks of a byte": (chunks(b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + LAST), 200),
    "trailers that look like framing": (chunks(CHUNK + b"\r\n0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\n\r\n"), 200),
    "a host by its number, and a port": (head(b"GET /ping HTTP/1.1", b"Host: [::1]:8080"), 200),
    "a host of no name": (head(b"GET /ping HTTP/1.1", b"Host:"), 200),
    "a few extensions": (chunks(b"00f;a=b ; c=\"d\"\r\n" + BODY + b"\r\n000;e\r\n\r\n"), 200),
    "empty lines before a request": (b"\r\n\r\n" + PING, 200),
    "blanks around a value": (call(b"Content-Length: \t15 \t", body=BODY), 200),
    "a length with zeros before it": (call(b"Content-Length: 0015", body=BODY), 200),
    "bytes over 127 in a value": (ping(b"X: \xe4\xff"), 200),
    "an empty value": (ping(b"X:"), 200),
    "a body that nobody asked for": (head(b"GET /ping HTTP/1.1", b"Host: a", b"Content-Length: 3") + b"abc", 200),
    "a header twice": (ping(b"X: a", b"X: b"), 200),
    "as many headers as there may be": (ping(*[b"a: b"] * 255), 200),
    "no body where one belongs": (call(), 400),
    "a wish for another protocol": (ping(b"Connection: Upgrade", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk"), 200),
    "a wish for WebSockets": (ping(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: dGhlIHNhbXBsZQ=="), 200),
    **{
        f"{method.decode()} of /invocations": (head(method + b" /invocations HTTP/1.1", b"Host: a"), 405)
        for method in (b"GET", b"PUT", b"DELETE", b"PATCH", b"TRACE", b"OPTIONS", b"PROPFIND", b"post", b"X")
    },
    "POST of /ping": (head(b"POST /ping HTTP/1.1", b"Host: a", b"Content-Length: 0"), 405),
    "CONNECT": (head(b"CONNECT internal:80 HTTP/1.1", b"Host: internal:80"), 404),
    "OPTIONS of everything": (head(b"OPTIONS * HTTP/1.1", b"Host: a"), 404),
    **{
        f"the path {path.decode()}": (head(b"GET " + path + b" HTTP/1.1", b"Host: a"), 404)
        for path in (
            b"//ping", b"/ping/", b"/./ping", b"/x/../ping", b"/../../etc/passwd", b"/%70ing", b"/ping%00", b"/%2e%2e/ping",
            b"/ping;a", b"/PING", b"/ping%2f", b"\\ping", b"ping", b"http://a/x/../ping", b"http://a//ping",
            b"file:///ping/x", b"/ping#a",
        )
    },
    **{
        f"the target {target.decode()}": (head(b"GET " + target + b" HTTP/1.1", b"Host: a"), 200)
        for target in (b"/ping?a=../..", b"http://internal:8081/ping", b"http://user@a/ping", b"/ping?" + b"%" * 20)
    },
}  # fmt: skip
