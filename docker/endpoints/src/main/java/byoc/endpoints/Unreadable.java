package byoc.endpoints;

import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpResponseStatus;

/** What is wrong with a request whose end cannot be told or will not be read; the connection ends with its answer. */
final class Unreadable extends IllegalArgumentException {
    private static final long serialVersionUID = 1;

    private final transient FullHttpResponse refusal;

    Unreadable(HttpResponseStatus status, String sentence) {
        this(ErrorType.BAD_REQUEST.response(status, sentence));
    }

    Unreadable(FullHttpResponse refusal) {
        super(refusal.status().toString());
        this.refusal = refusal;
    }

    FullHttpResponse refusal() {
        return refusal;
    }

    /** A caller's fault has no place in our code worth telling, and any number of callers may make it. */
    @Override
    public synchronized Throwable fillInStackTrace() {
        return this;
    }
}
