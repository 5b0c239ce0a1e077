package byoc.endpoints;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.DecoderResult;
import io.netty.handler.codec.http.DefaultLastHttpContent;
import io.netty.handler.codec.http.HttpContent;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpHeaders;
import io.netty.handler.codec.http.HttpMessage;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpRequestDecoder;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpVersion;
import java.util.List;

/**
 * Netty's decoder, without its guesses. Where it takes the better of two lengths, or no length for a coding it does
 * not know, a proxy in front may guess otherwise, and what one of them reads as a body the other reads as the next
 * caller's request. Such a request is answered with what is wrong with it, and its connection ends (RFC 9112,
 * sections 6.1 and 6.3).
 */
final class RequestDecoder extends HttpRequestDecoder {
    private static final int MAX_REQUEST_LINE = 8 * 1024;
    private static final int MAX_HEADERS = 64 * 1024;
    private static final int MAX_CHUNK = 64 * 1024;

    private boolean broken;

    RequestDecoder() {
        super(MAX_REQUEST_LINE, MAX_HEADERS, MAX_CHUNK);
    }

    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf in, List<Object> out) throws Exception {
        if (broken) {
            in.skipBytes(in.readableBytes());
            return;
        }
        try {
            super.decode(context, in, out);
        } catch (IllegalArgumentException | IndexOutOfBoundsException fault) { // a chunk of a negative size
            broken = true;
            out.add(unreadableBody(new DefaultLastHttpContent()));
            return;
        }
        Object latest = out.isEmpty() ? null : out.get(out.size() - 1);
        if (latest instanceof HttpContent content && !(latest instanceof HttpMessage)
                && content.decoderResult().isFailure()) {
            unreadableBody(content);
        }
    }

    private static HttpContent unreadableBody(HttpContent content) {
        content.setDecoderResult(DecoderResult.failure(new Unreadable(HttpResponseStatus.BAD_REQUEST,
                "The chunks of the body cannot be read: a size that is no hexadecimal number, or a line over 8 KiB.")));
        return content;
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
        }
        return super.isContentAlwaysEmpty(head);
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
        if (headers.getAll(HttpHeaderNames.HOST).size() != 1) {
            throw badRequest("An HTTP/1.1 request has one Host header (RFC 9112, section 3.2).");
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
