package byoc.endpoints;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.DecoderResult;
import io.netty.handler.codec.http.DefaultLastHttpContent;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpHeaders;
import io.netty.handler.codec.http.HttpMessage;
import io.netty.handler.codec.http.HttpObject;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpRequestDecoder;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpVersion;
import java.util.List;
import java.util.regex.Pattern;

/**
 * Netty's decoder, without its guesses; {@link Framing} reads its bytes first. Where it takes the better of two lengths, or no length for a coding it does
 * not know, a proxy in front may guess otherwise, and what one of them reads as a body the other reads as the next
 * caller's request. Such a request is answered with what is wrong with it, and its connection ends (RFC 9112,
 * sections 6.1 and 6.3).
 */
final class RequestDecoder extends HttpRequestDecoder {
    private static final int MAX_REQUEST_LINE = 8 * 1024;
    private static final int MAX_HEADERS = 64 * 1024;
    private static final int MAX_CHUNK = 64 * 1024;

    /** What a host and a port are written with (RFC 3986, sections 3.2.2 and 3.2.3); none at all is a Host too. */
    private static final Pattern HOST = Pattern.compile("[\\w.~!$&'()*+,;=%:\\[\\]-]*");

    /** Follows the last message of a connection whose bytes cannot be read further. */
    static final Object ENDED = new Object();

    /** Of a protocol that was dropped: for two such headers Netty takes eight bytes behind a head for its body. */
    private static final String FIRST_DRAFT_OF_WEBSOCKETS = "Sec-WebSocket-Key1";

    private final Framing framing = new Framing();
    private int approved;
    private boolean broken;

    RequestDecoder() {
        super(MAX_REQUEST_LINE, MAX_HEADERS, MAX_CHUNK);
    }

    /** Hands Netty what {@link Framing} approves of; what it does not ends the connection behind all that came before. */
    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf in, List<Object> out) throws Exception {
        int begin = in.readerIndex();
        int end = in.writerIndex();
        int decodable = broken ? begin : framing.approve(in, begin + approved, end);
        int before = out.size();
        if (decodable > begin) {
            in.writerIndex(decodable);
            try {
                super.decode(context, in, out);
            } finally {
                in.writerIndex(end);
                approved = decodable - in.readerIndex();
            }
        }
        if (broken) {
            in.skipBytes(in.readableBytes());
        } else if (out.size() > before) {
            checkDecoded(out);
        } else if (in.readerIndex() == begin && framing.fault() != null) {
            in.skipBytes(in.readableBytes());
            out.addAll(end(framing.fault()));
        }
    }

    /** Whether a request has begun that has not come whole, and can still be read. */
    boolean isAmidRequest() {
        return !broken && framing.isAmidRequest();
    }

    /** How many requests have begun. */
    long requests() {
        return framing.requests();
    }

    /** What ends the connection: the fault, as a request of its own or as the end of one that has begun, and the sign. */
    List<Object> end(Unreadable fault) {
        broken = true;
        HttpObject last = framing.isAmidHead() ? createInvalidMessage() : new DefaultLastHttpContent();
        last.setDecoderResult(DecoderResult.failure(fault));
        return List.of(last, ENDED);
    }

    /** What Netty could not read it reads no further; the same sentence for whatever it finds too long in chunks. */
    private void checkDecoded(List<Object> out) {
        if (out.get(out.size() - 1) instanceof HttpObject part && part.decoderResult().isFailure()) {
            broken = true;
            if (!(part instanceof HttpMessage)) {
                part.setDecoderResult(DecoderResult.failure(
                        badRequest("The chunks of the body cannot be read: the line of a size is over 8 KiB.")));
            }
            out.add(ENDED);
        }
    }

    /** Netty asks this of a complete head, before it settles where the body ends. */
    @Override
    protected boolean isContentAlwaysEmpty(HttpMessage head) {
        if (head instanceof HttpRequest request) {
            checkVersion(request.protocolVersion());
            checkFraming(request.protocolVersion(), request.headers());
            if (request.protocolVersion().equals(HttpVersion.HTTP_1_1)) {
                checkHostAndExpectation(request.headers());
            }
            if (request.headers().contains(FIRST_DRAFT_OF_WEBSOCKETS)) {
                throw badRequest("The header " + FIRST_DRAFT_OF_WEBSOCKETS + " is of a protocol that is not spoken here.");
            }
            tellFraming(request.headers());
        }
        return super.isContentAlwaysEmpty(head);
    }

    private void tellFraming(HttpHeaders headers) {
        String length = headers.get(HttpHeaderNames.CONTENT_LENGTH);
        if (headers.contains(HttpHeaderNames.TRANSFER_ENCODING)) {
            framing.chunksFollow();
        } else {
            framing.bodyIs(length == null ? 0 : Long.parseLong(length));
        }
    }

    private static void checkVersion(HttpVersion version) {
        if (!version.equals(HttpVersion.HTTP_1_1) && !version.equals(HttpVersion.HTTP_1_0)) {
            throw new Unreadable(
                    HttpResponseStatus.HTTP_VERSION_NOT_SUPPORTED, "This port speaks HTTP/1.1 and HTTP/1.0.");
        }
    }

    private static void checkFraming(HttpVersion version, HttpHeaders headers) {
        List<String> lengths = headers.getAll(HttpHeaderNames.CONTENT_LENGTH);
        List<String> codings = headers.getAll(HttpHeaderNames.TRANSFER_ENCODING);
        if (lengths.size() > 1 || !lengths.stream().allMatch(RequestDecoder::isLength)) {
            throw badRequest("Content-Length must be one whole number.");
        }
        if (codings.isEmpty()) {
            return;
        }
        if (!lengths.isEmpty()) {
            throw badRequest("Content-Length and Transfer-Encoding exclude each other.");
        }
        if (codings.size() > 1 || !HttpHeaderValues.CHUNKED.contentEqualsIgnoreCase(codings.get(0))) {
            throw badRequest("The only Transfer-Encoding taken is \"chunked\", alone and once.");
        }
        if (version.equals(HttpVersion.HTTP_1_0)) {
            throw badRequest("HTTP/1.0 has no Transfer-Encoding.");
        }
    }

    private static boolean isLength(String text) {
        return !text.isEmpty() && text.chars().allMatch(character -> character >= '0' && character <= '9');
    }

    private static void checkHostAndExpectation(HttpHeaders headers) {
        List<String> hosts = headers.getAll(HttpHeaderNames.HOST);
        if (hosts.size() != 1 || !HOST.matcher(hosts.get(0)).matches()) {
            throw badRequest("An HTTP/1.1 request has one Host header, with a host and perhaps a port (RFC 9112, section 3.2).");
        }
        for (String expectation : headers.getAll(HttpHeaderNames.EXPECT)) {
            if (!HttpHeaderValues.CONTINUE.contentEqualsIgnoreCase(expectation)) {
                throw new Unreadable(
                        HttpResponseStatus.EXPECTATION_FAILED, "The only expectation met is \"100-continue\".");
            }
        }
    }

    private static Unreadable badRequest(String sentence) {
        return new Unreadable(HttpResponseStatus.BAD_REQUEST, sentence);
    }
}
