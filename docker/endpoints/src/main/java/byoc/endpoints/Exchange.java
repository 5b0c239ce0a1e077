package byoc.endpoints;

import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpMethod;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpVersion;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * One request and its one answer. Whoever answers first wins, from whatever thread; what comes later (a worker that
 * finishes after its caller hung up) is dropped. It knows nothing of models: that is {@link Invocation}.
 */
final class Exchange {
    static final String INVOCATIONS = "/invocations";
    static final String REQUEST_ID = "x-request-id";

    /** What is safe in a log line and in a header, as the identifiers of tracing systems are. */
    private static final Pattern SANE_ID = Pattern.compile("[A-Za-z0-9._~:@+/=-]{1,128}");

    /** How the absolute form of a target begins (RFC 9112, section 3.2.2). */
    private static final Pattern SCHEME = Pattern.compile("[A-Za-z][A-Za-z0-9+.-]*://");

    private final Connection connection;
    private final HttpMethod method;
    private final String target;
    private final String path;
    private final boolean invocation;
    private final HttpVersion version;
    private final boolean keepAlive;
    private final String id;
    private final long arrived = System.nanoTime();
    private final AtomicBoolean done = new AtomicBoolean();
    private final AtomicBoolean streaming = new AtomicBoolean();
    private FullHttpRequest request;
    private FullHttpResponse refusal;
    private volatile Runnable onAbandoned = () -> { };
    private ModelMetrics metrics;
    private boolean inFlight;
    private final Named named;
    private long bytesIn;
    private long bytesOut;
    private volatile Outcome outcome = Outcome.UNKNOWN;
    private volatile Waited waited = Waited.NEVER;
    private volatile Failure failure = Failure.NONE;
    private volatile long answered;

    /** The headers by which others know the call, each null where it was not sent. */
    record Named(String inferenceId, String traceParent, String traceState, String amznTraceId) {}

    /** What the worker tells of its answer; the stages are null unless they were asked for. */
    record Outcome(long records, long badRecords, String stages) {
        static final Outcome UNKNOWN = new Outcome(0, 0, null);
    }

    /** When the call entered the queue and when a worker took it; the latter is 0 when none did. */
    record Waited(long queued, long taken) {
        static final Waited NEVER = new Waited(0, 0);
    }

    /** Why the call failed, as far as the log may say it: a reason only where it quotes nothing that the caller sent. */
    record Failure(String type, String reason) {
        static final Failure NONE = new Failure(null, null);
    }

    Exchange(Connection connection, HttpRequest head, boolean keepAlive) {
        this.connection = connection;
        this.method = head.method();
        this.target = head.uri();
        this.path = pathOf(target);
        this.invocation = INVOCATIONS.equals(path) || ModelPath.isInvocation(path);
        this.version = head.protocolVersion();
        this.keepAlive = keepAlive;
        String sent = head.headers().get(REQUEST_ID);
        this.id = sent != null && SANE_ID.matcher(sent).matches() ? sent : freshId();
        this.named = new Named(
                head.headers().get("x-amzn-sagemaker-inference-id"),
                head.headers().get("traceparent"),
                head.headers().get("tracestate"),
                head.headers().get("x-amzn-trace-id"));
    }

    /** A version 4 UUID. Unique, not secret: a secure random source costs a lock that every request would take. */
    static String freshId() {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        long high = random.nextLong() & ~0xf000L | 0x4000L;
        long low = random.nextLong() >>> 2 | Long.MIN_VALUE;
        return new UUID(high, low).toString();
    }

    private static String pathOf(String target) {
        int end = target.indexOf('?');
        String path = end < 0 ? target : target.substring(0, end);
        Matcher scheme = SCHEME.matcher(path);
        if (!scheme.lookingAt()) {
            return path;
        }
        int start = path.indexOf('/', scheme.end());
        return start < 0 ? "/" : path.substring(start);
    }

    HttpMethod method() {
        return method;
    }

    String path() {
        return path;
    }

    /** The target as sent, with its query. */
    String target() {
        return target;
    }

    HttpVersion version() {
        return version;
    }

    boolean keepAlive() {
        return keepAlive;
    }

    String id() {
        return id;
    }

    /** Whether it is one of the platform's own questions, which come every few seconds and are not worth a line. */
    boolean isProbe() {
        return "/ping".equals(path) || "/metrics".equals(path);
    }

    Named named() {
        return named;
    }

    boolean isInvocation() {
        return invocation;
    }

    long arrived() {
        return arrived;
    }

    Outcome outcome() {
        return outcome;
    }

    void setOutcome(Outcome told) {
        outcome = told;
    }

    Waited waited() {
        return waited;
    }

    void setWaited(Waited times) {
        waited = times;
    }

    Failure failure() {
        return failure;
    }

    void setFailure(Failure known) {
        failure = known;
    }

    /** When the answer, or the last piece of it, was there to be written; 0 when none was. */
    long answered() {
        return answered;
    }

    long bytesIn() {
        return bytesIn;
    }

    long bytesOut() {
        return bytesOut;
    }

    /** So many bytes of the answer's body go out; on the event loop. */
    void writing(int bytes) {
        bytesOut += bytes;
    }

    /** Where this call is counted; for a call of a model only. */
    ModelMetrics metrics() {
        return metrics;
    }

    void countIn(ModelMetrics ofModel) {
        metrics = ofModel;
    }

    boolean inFlight() {
        return inFlight;
    }

    void setInFlight(boolean counted) {
        inFlight = counted;
    }

    /** Holds the request until {@link #releaseRequest}; without one, the refusal is the answer on its turn. */
    void hold(FullHttpRequest complete) {
        request = complete;
        bytesIn = complete.content().readableBytes();
    }

    FullHttpRequest request() {
        return request;
    }

    int bodyBytes() {
        return request == null ? 0 : request.content().readableBytes();
    }

    void releaseRequest() {
        if (request != null) {
            request.release();
            request = null;
        }
    }

    void refuse(FullHttpResponse response) {
        refusal = response;
    }

    FullHttpResponse refusal() {
        return refusal;
    }

    /** To be run, on the event loop, when the caller hangs up before the answer; the last one given counts. */
    void onAbandoned(Runnable action) {
        onAbandoned = action;
    }

    void answer(FullHttpResponse response) {
        if (done.compareAndSet(false, true)) {
            note(response);
            connection.send(this, response);
        } else {
            response.release();
        }
    }

    private void note(FullHttpResponse response) {
        answered = System.nanoTime();
        if (response instanceof Refusal refusal) {
            failure = new Failure(refusal.type(), refusal.reason());
        }
    }

    /** A piece of the answer, in order; from one thread. The connection is cut behind a piece that breaks it off. */
    void stream(FullHttpResponse piece, boolean last, boolean broken) {
        if (done.compareAndSet(false, true)) {
            streaming.set(true);
        } else if (!streaming.get()) {
            piece.release();
            return;
        }
        if (last) {
            answered = System.nanoTime();
            streaming.set(false);
        }
        connection.sendPiece(this, piece, last, broken);
    }

    /** An error as the answer; where a part of it has left already, that is cut off. */
    void fail(FullHttpResponse error) {
        if (streaming.compareAndSet(true, false)) {
            note(error);
            error.release();
            connection.cut(this);
        } else {
            answer(error);
        }
    }

    /** The connection is gone; returns whether the answer was still owed. */
    boolean abandon() {
        releaseRequest();
        if (!streaming.compareAndSet(true, false) && !done.compareAndSet(false, true)) {
            return false;
        }
        onAbandoned.run();
        return true;
    }

    /** Whether no part of the answer has left and the caller still waits for it. */
    boolean isUnanswered() {
        return !done.get() && connection.isOpen();
    }

    boolean isOpen() {
        return (!done.get() || streaming.get()) && connection.isOpen();
    }
}
