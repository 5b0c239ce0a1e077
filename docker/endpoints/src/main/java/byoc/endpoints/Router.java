package byoc.endpoints;

import com.google.gson.JsonObject;
import io.netty.buffer.Unpooled;
import io.netty.handler.codec.TooLongFrameException;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpMethod;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpVersion;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The routes on the serving port, and the refusal of all that is none of them. */
final class Router {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");

    private final Map<String, Route> routes;
    private final Settings settings;
    private final Optional<ModelRoutes> models;

    private record Route(HttpMethod method, Consumer<Exchange> handler) {}

    Router(
            Settings settings,
            Readiness readiness,
            Metrics metrics,
            InvocationDesk invocations,
            Optional<ModelRoutes> models) {
        this.settings = settings;
        this.models = models;
        this.routes = Map.of(
                "/ping", new Route(HttpMethod.GET, exchange -> exchange.answer(ping(readiness.state()))),
                Exchange.INVOCATIONS,
                        new Route(HttpMethod.POST, models.isPresent() ? ModelRoutes::refuse : invocations::accept),
                "/execution-parameters",
                        new Route(HttpMethod.GET, exchange -> exchange.answer(executionParameters())),
                "/metrics", new Route(HttpMethod.GET, exchange -> exchange.answer(metrics(metrics))));
    }

    /** Answers the exchange, now or later; throws nothing. */
    void route(Exchange exchange) {
        try {
            if (exchange.refusal() != null) {
                exchange.answer(exchange.refusal());
                return;
            }
            Route route = routes.get(exchange.path());
            if (route == null && models.isPresent() && ModelPath.isOfModels(exchange.path())) {
                models.get().route(exchange);
            } else if (route == null) {
                exchange.answer(ErrorType.NOT_FOUND.response("Nothing is served at this path; there are "
                        + "/ping, " + (models.isPresent() ? "/models" : "/invocations")
                        + ", /execution-parameters and /metrics."));
            } else if (!route.method().equals(exchange.method())) {
                exchange.answer(wrongMethod(route.method()));
            } else {
                route.handler().accept(exchange);
            }
        } catch (RuntimeException | OutOfMemoryError fault) {
            LOG.error("A request could not be handled", fault);
            exchange.answer(ErrorType.MODEL_ERROR.response("The request could not be handled."));
        } finally {
            exchange.releaseRequest();
        }
    }

    /** The refusal of a method that the path does not take, naming those that it does. */
    static FullHttpResponse wrongMethod(HttpMethod... allowed) {
        String names = Stream.of(allowed).map(HttpMethod::name).collect(Collectors.joining(", "));
        FullHttpResponse refusal = ErrorType.METHOD_NOT_ALLOWED.response("This path takes " + names + " only.");
        refusal.headers().set(HttpHeaderNames.ALLOW, names);
        return refusal;
    }

    private static FullHttpResponse ping(Readiness.State state) {
        return state == Readiness.State.READY
                ? new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.OK)
                : state.refusal();
    }

    private FullHttpResponse executionParameters() {
        JsonObject parameters = new JsonObject();
        parameters.addProperty("MaxConcurrentTransforms", settings.maxConcurrentTransforms());
        parameters.addProperty("BatchStrategy", settings.batchStrategy());
        parameters.addProperty("MaxPayloadInMB", settings.maxPayloadMb());
        return ErrorType.json(HttpResponseStatus.OK, parameters);
    }

    private static FullHttpResponse metrics(Metrics metrics) {
        FullHttpResponse response = new DefaultFullHttpResponse(
                HttpVersion.HTTP_1_1,
                HttpResponseStatus.OK,
                Unpooled.wrappedBuffer(metrics.text().getBytes(StandardCharsets.UTF_8)));
        response.headers().set(HttpHeaderNames.CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
        return response;
    }

    /** The refusal of a body over the limit, naming the limit and what sets it. */
    FullHttpResponse tooLarge() {
        double mebibytes = Math.round(settings.maxRequestBytes() / 1048576.0 * 100) / 100.0;
        String limit = mebibytes == Math.rint(mebibytes)
                ? Long.toString((long) mebibytes)
                : Double.toString(mebibytes);
        return ErrorType.PAYLOAD_TOO_LARGE.response("The request body is over the limit of " + limit
                + " MiB, which SAGEMAKER_MAX_PAYLOAD_IN_MB sets.");
    }

    /** The refusal of what is no HTTP request; Netty 4.1.53 tells its limits apart only by the exception's text. */
    static FullHttpResponse unreadable(Throwable cause) {
        if (cause instanceof Unreadable unreadable) {
            return unreadable.refusal();
        }
        if (cause instanceof TooLongFrameException) {
            String text = String.valueOf(cause.getMessage());
            if (text.contains("header")) {
                return ErrorType.BAD_REQUEST.response(
                        HttpResponseStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are over the limit of 64 KiB.");
            }
            if (text.contains("line")) {
                return ErrorType.BAD_REQUEST.response(
                        HttpResponseStatus.REQUEST_URI_TOO_LONG, "The request line is over the limit of 8 KiB.");
            }
        }
        return ErrorType.BAD_REQUEST.response("This is not a readable HTTP/1.1 request.");
    }
}
