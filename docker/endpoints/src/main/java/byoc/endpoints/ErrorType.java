package byoc.endpoints;

import com.google.gson.JsonObject;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpVersion;
import java.nio.charset.StandardCharsets;

/**
 * The closed list of errors that the frontend itself answers with, each with its status, and the one place where
 * their body is written: {@code {"error": {"type": ..., "message": ...}}}. The type is the part that a caller may
 * branch on; the message is for people and never carries the inside of anything.
 */
enum ErrorType {
    BAD_REQUEST("BadRequest", HttpResponseStatus.BAD_REQUEST, false),
    NOT_FOUND("NotFound", HttpResponseStatus.NOT_FOUND, false),
    METHOD_NOT_ALLOWED("MethodNotAllowed", HttpResponseStatus.METHOD_NOT_ALLOWED, false),
    CONFLICT("Conflict", HttpResponseStatus.CONFLICT, false),
    PAYLOAD_TOO_LARGE("PayloadTooLarge", HttpResponseStatus.REQUEST_ENTITY_TOO_LARGE, false),
    POISON_INPUT("PoisonInput", HttpResponseStatus.UNPROCESSABLE_ENTITY, false),
    MODEL_ERROR("ModelError", HttpResponseStatus.INTERNAL_SERVER_ERROR, false),
    INSUFFICIENT_MEMORY("InsufficientMemory", HttpResponseStatus.INSUFFICIENT_STORAGE, false),
    OVERLOADED("Overloaded", HttpResponseStatus.SERVICE_UNAVAILABLE, true),
    NOT_READY("NotReady", HttpResponseStatus.SERVICE_UNAVAILABLE, true),
    STOPPING("Stopping", HttpResponseStatus.SERVICE_UNAVAILABLE, true),
    WORKER_LOST("WorkerLost", HttpResponseStatus.SERVICE_UNAVAILABLE, true),
    TIMEOUT("Timeout", HttpResponseStatus.GATEWAY_TIMEOUT, false);

    /** Of a request whose record at fault is not known. */
    static final String POISON_SENTENCE = "The model's process ends whenever this request is run, so it is refused; the "
            + "container's log says when. Send the records one by one to find the one at fault.";

    private final String type;
    private final HttpResponseStatus status;
    private final boolean worthRetrying;

    ErrorType(String type, HttpResponseStatus status, boolean worthRetrying) {
        this.type = type;
        this.status = status;
        this.worthRetrying = worthRetrying;
    }

    FullHttpResponse response(String message) {
        return response(status, message);
    }

    /** The same type under a more precise status, as 431 is a more precise 400. */
    FullHttpResponse response(HttpResponseStatus preciseStatus, String message) {
        JsonObject error = new JsonObject();
        error.addProperty("type", type);
        error.addProperty("message", message);
        JsonObject body = new JsonObject();
        body.add("error", error);
        FullHttpResponse response = new Refusal(preciseStatus, bytes(body), type, message);
        response.headers().set(HttpHeaderNames.CONTENT_TYPE, HttpHeaderValues.APPLICATION_JSON);
        if (worthRetrying) {
            response.headers().set(HttpHeaderNames.RETRY_AFTER, "1");
        }
        return response;
    }

    private static ByteBuf bytes(JsonObject body) {
        return Unpooled.wrappedBuffer(body.toString().getBytes(StandardCharsets.UTF_8));
    }

    static FullHttpResponse json(HttpResponseStatus status, JsonObject body) {
        FullHttpResponse response = new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, bytes(body));
        response.headers().set(HttpHeaderNames.CONTENT_TYPE, HttpHeaderValues.APPLICATION_JSON);
        return response;
    }
}
