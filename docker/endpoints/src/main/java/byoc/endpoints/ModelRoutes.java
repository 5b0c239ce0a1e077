package byoc.endpoints;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpMethod;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.QueryStringDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * {@code /models} and what lies below, as the platform's page on bringing one's own container for multi-model endpoints
 * describes them. Decides nothing about models: that is the shelf's.
 */
final class ModelRoutes {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");
    private static final int PAGE = 100;
    private static final int LARGEST_PAGE = 1000;

    /** Bytes of a name and an address, and some; a parsed text of brackets takes fifty times its size. */
    private static final int LONGEST_LOAD = 64 * 1024;

    private final ModelShelf shelf;

    ModelRoutes(ModelShelf shelf) {
        this.shelf = shelf;
    }

    /** The answer to a call that names no model. */
    static void refuse(Exchange exchange) {
        exchange.answer(ErrorType.NOT_FOUND.response(
                "This endpoint serves many models: call one by POST /models/{name}/invoke."));
    }

    /** Answers the exchange, now or later. */
    void route(Exchange exchange) {
        try {
            ModelPath path = ModelPath.parse(exchange.path());
            if (path.name() == null) {
                list(exchange);
            } else if (path.invocation()) {
                call(exchange, path.name());
            } else {
                one(exchange, path.name());
            }
        } catch (IllegalArgumentException mistake) {
            exchange.answer(ErrorType.BAD_REQUEST.response(mistake.getMessage()));
        }
    }

    private void call(Exchange exchange, String name) {
        if (HttpMethod.POST.equals(exchange.method())) {
            shelf.call(name, exchange);
        } else {
            exchange.answer(Router.wrongMethod(HttpMethod.POST));
        }
    }

    private void list(Exchange exchange) {
        if (HttpMethod.GET.equals(exchange.method())) {
            exchange.answer(page(query(exchange.target())));
        } else if (HttpMethod.POST.equals(exchange.method())) {
            load(exchange);
        } else {
            exchange.answer(Router.wrongMethod(HttpMethod.GET, HttpMethod.POST));
        }
    }

    private void one(Exchange exchange, String name) {
        if (HttpMethod.GET.equals(exchange.method())) {
            exchange.answer(shelf.loaded(name)
                    .map(served -> ErrorType.json(HttpResponseStatus.OK, ModelShelf.described(served)))
                    .orElseGet(() -> ModelShelf.absent(name)));
        } else if (HttpMethod.DELETE.equals(exchange.method())) {
            answerLater(exchange, shelf.unload(name));
        } else {
            exchange.answer(Router.wrongMethod(HttpMethod.GET, HttpMethod.DELETE));
        }
    }

    private void load(Exchange exchange) {
        if (exchange.request().content().readableBytes() > LONGEST_LOAD) {
            exchange.answer(ErrorType.PAYLOAD_TOO_LARGE.response(
                    "The body is over 64 KiB, and belongs to a load: it needs model_name and url and nothing more."));
            return;
        }
        String sent = exchange.request().content().toString(StandardCharsets.UTF_8);
        JsonObject wanted;
        try {
            wanted = JsonParser.parseString(sent).getAsJsonObject();
        } catch (JsonParseException | IllegalStateException unreadable) {
            throw new IllegalArgumentException(
                    "The body must be a JSON object with model_name and url, such as {\"model_name\": \"a\", \"url\": \"/opt/ml/models/a/model\"}.",
                    unreadable);
        }
        answerLater(exchange, shelf.load(ModelPath.checked(text(wanted, "model_name")), text(wanted, "url")));
    }

    private static String text(JsonObject wanted, String key) {
        if (!(wanted.get(key) instanceof JsonPrimitive value) || !value.isString()) {
            throw new IllegalArgumentException("The body has no " + key + ", which must be a text.");
        }
        return value.getAsString();
    }

    private static void answerLater(Exchange exchange, CompletableFuture<FullHttpResponse> answer) {
        answer.whenComplete((response, fault) -> {
            if (fault != null) {
                LOG.error("A model could not be loaded or unloaded", fault);
            }
            exchange.answer(
                    fault == null ? response : ErrorType.MODEL_ERROR.response("The request could not be handled."));
        });
    }

    private static Map<String, List<String>> query(String target) {
        try {
            return new QueryStringDecoder(target).parameters();
        } catch (IllegalArgumentException incomplete) {
            throw new IllegalArgumentException("The query is not percent-encoded: a % needs two digits.", incomplete);
        }
    }

    /** Models in the order of their names; the token of the next page is the last name of this one. */
    private FullHttpResponse page(Map<String, List<String>> query) {
        int limit = limit(query);
        String after = after(query);
        List<ServedModel> left = shelf.loaded().stream()
                .filter(served -> after == null || served.name().compareTo(after) > 0)
                .toList();
        JsonArray models = new JsonArray();
        left.stream().limit(limit).map(ModelShelf::described).forEach(models::add);
        JsonObject page = new JsonObject();
        page.add("models", models);
        if (left.size() > limit) {
            byte[] last = left.get(limit - 1).name().getBytes(StandardCharsets.UTF_8);
            page.addProperty("nextPageToken", Base64.getUrlEncoder().withoutPadding().encodeToString(last));
        }
        return ErrorType.json(HttpResponseStatus.OK, page);
    }

    private static int limit(Map<String, List<String>> query) {
        if (!query.containsKey("limit")) {
            return PAGE;
        }
        try {
            int limit = Integer.parseInt(query.get("limit").get(0));
            if (limit > 0) {
                return Math.min(limit, LARGEST_PAGE);
            }
        } catch (NumberFormatException ignored) {
            LOG.debug("A limit that is no number", ignored);
        }
        throw new IllegalArgumentException("limit must be a whole number from 1.");
    }

    private static String after(Map<String, List<String>> query) {
        if (!query.containsKey("nextPageToken")) {
            return null;
        }
        try {
            return new String(Base64.getUrlDecoder().decode(query.get("nextPageToken").get(0)), StandardCharsets.UTF_8);
        } catch (IllegalArgumentException foreign) {
            throw new IllegalArgumentException("nextPageToken must be one that a page before had.", foreign);
        }
    }
}
