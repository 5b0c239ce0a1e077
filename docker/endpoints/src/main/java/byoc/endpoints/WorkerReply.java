package byoc.endpoints;

import io.netty.buffer.Unpooled;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpVersion;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.pytorch.serve.util.messages.RequestInput;

/**
 * What a handler answered, split into what the caller gets and what was meant for this frontend. Headers that start
 * with {@code x-byoc-} are the handler's notes to the metrics and the log; those about the connection are the
 * frontend's to set.
 */
final class WorkerReply {
    private static final String INTERNAL_PREFIX = "x-byoc-";
    private static final String RECORDS = INTERNAL_PREFIX + "records";
    private static final String BAD_RECORDS = INTERNAL_PREFIX + "bad-records";
    private static final String BATCH = INTERNAL_PREFIX + "batch";
    private static final String ERROR = INTERNAL_PREFIX + "error";
    private static final String STAGES = INTERNAL_PREFIX + "stages";
    private static final Set<String> NOT_THE_HANDLERS = Set.of(
            "connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
            "upgrade");
    private static final String STREAM_NEXT = RequestInput.TS_STREAM_NEXT.toLowerCase(Locale.ROOT);
    private static final String BROKEN = INTERNAL_PREFIX + "broken";

    private final FullHttpResponse response;
    private double goodRecords;
    private double badRecords;
    private BatchReport batch;
    private String error;
    private String stages;
    private String streamNext;
    private boolean broken;

    /** Throws IllegalArgumentException for what no HTTP response can carry. */
    WorkerReply(byte[] body, CharSequence contentType, int status, String phrase, Map<String, String> headers) {
        response = new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status(status, phrase), Unpooled.wrappedBuffer(body));
        if (contentType != null && contentType.length() > 0) {
            response.headers().set(HttpHeaderNames.CONTENT_TYPE, clean(contentType.toString()));
        }
        headers.forEach(this::header);
    }

    private static HttpResponseStatus status(int code, String phrase) {
        if (code < 200 || code > 599) {
            throw new IllegalArgumentException(code + " is not a final HTTP status");
        }
        return phrase == null || phrase.isBlank()
                ? HttpResponseStatus.valueOf(code)
                : new HttpResponseStatus(code, clean(phrase));
    }

    private void header(String name, String value) {
        String lower = name.toLowerCase(Locale.ROOT);
        if (lower.equals(STREAM_NEXT)) {
            streamNext = value;
            return;
        }
        switch (lower) {
            case RECORDS -> goodRecords = Math.max(0, BatchReport.number(value));
            case BAD_RECORDS -> badRecords = Math.max(0, BatchReport.number(value));
            case BROKEN -> broken = true;
            case BATCH -> batch = BatchReport.parse(value);
            case ERROR -> error = value;
            case STAGES -> stages = value;
            default -> {
                if (!lower.startsWith(INTERNAL_PREFIX) && !NOT_THE_HANDLERS.contains(lower)) {
                    response.headers().set(name, clean(value));
                }
            }
        }
    }

    /** Netty lets a folded line pass, which is a second header to some readers. */
    private static String clean(String value) {
        if (value.chars().anyMatch(character -> character < ' ' && character != '\t' || character == 0x7f)) {
            throw new IllegalArgumentException("a control character in a header or reason phrase");
        }
        return value;
    }

    /** Whether the answer comes in pieces, of which this is one. */
    boolean isPart() {
        return streamNext != null;
    }

    boolean isLast() {
        return !"true".equals(streamNext);
    }

    /** Whether the answer ends here without being whole. */
    boolean isBroken() {
        return broken;
    }

    FullHttpResponse response() {
        return response;
    }

    /** What the handler told of its batch; one answer of each carries it. */
    Optional<BatchReport> batch() {
        return Optional.ofNullable(batch);
    }

    /** Passes the handler's notes on. */
    void report(Exchange exchange) {
        ModelMetrics metrics = exchange.metrics();
        metrics.records(goodRecords, badRecords);
        exchange.setOutcome(new Exchange.Outcome((long) (goodRecords + badRecords), (long) badRecords, stages));
        if (error != null) {
            exchange.setFailure(new Exchange.Failure(error, null)); // its sentence may quote the body
        }
        if (batch != null) {
            metrics.batch(batch);
        }
    }
}
