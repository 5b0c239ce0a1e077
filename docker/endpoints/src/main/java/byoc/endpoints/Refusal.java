package byoc.endpoints;

import io.netty.buffer.ByteBuf;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpVersion;

/** An error that the frontend itself answers with, together with what the log is to know of it. */
final class Refusal extends DefaultFullHttpResponse {
    private final String type;
    private final String reason;

    Refusal(HttpResponseStatus status, ByteBuf body, String type, String reason) {
        super(HttpVersion.HTTP_1_1, status, body);
        this.type = type;
        this.reason = reason;
    }

    String type() {
        return type;
    }

    String reason() {
        return reason;
    }
}
