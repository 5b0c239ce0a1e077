package byoc.endpoints;

import io.netty.buffer.ByteBufUtil;
import io.netty.handler.codec.http.FullHttpRequest;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.SortedSet;
import org.pytorch.serve.archive.model.ModelNotFoundException;
import org.pytorch.serve.archive.model.ModelVersionNotFoundException;
import org.pytorch.serve.util.messages.InputParameter;
import org.pytorch.serve.wlm.Model;
import org.pytorch.serve.wlm.ModelManager;

/**
 * Where a call becomes a job in TorchServe's queue, or is turned away at once. TorchServe would let a call wait
 * without end for a worker that is gone; here it is told to come back.
 */
final class InvocationDesk {
    private static final String INTERNAL_PREFIX = "x-byoc-";

    private final Settings settings;
    private final Readiness readiness;
    private final PendingCalls pending;
    private final Gathering gathering = new Gathering();

    InvocationDesk(Settings settings, Readiness readiness, PendingCalls pending) {
        this.settings = settings;
        this.readiness = readiness;
        this.pending = pending;
    }

    /** Queues the call; its answer comes from a worker thread, some time later. */
    void accept(Exchange exchange) {
        Model model = readiness.model(settings.model());
        if (readiness.isStopping() || !Workers.anyLoaded(model)) {
            exchange.answer(readiness.refusalOfCalls());
            return;
        }
        queue(exchange, model);
    }

    /** Queues the call for this model, which has a worker. */
    void queue(Exchange exchange, Model model) {
        FullHttpRequest request = exchange.request();
        CallInput input = new CallInput(Exchange.freshId());
        Invocation invocation =
                new Invocation(model, input, request.content().readableBytes(), exchange, pending, gathering);
        if (!pending.admit(invocation)) {
            exchange.answer(pending.refusal());
            return;
        }
        exchange.onAbandoned(invocation::abandon);
        input.setHeaders(headers(request, exchange.id()));
        input.addParameter(new Body(ByteBufUtil.getBytes(request.content()), request.headers().get("content-type")));
        exchange.releaseRequest();
        if (isRefused(invocation)) {
            invocation.poisonous();
        } else if (enqueue(invocation)) {
            gathering.queued(model);
        } else {
            pending.remove(invocation);
            exchange.answer(ErrorType.OVERLOADED.response("All " + settings.queueSize()
                    + " places in the queue are taken; send it again in a second, send less at once, or add workers."
                    + " BYOC_QUEUE_SIZE sets the length of the queue."));
        }
    }

    /** Whether the body is known to end workers; of one whose records at fault are known, the worker refuses those. */
    private boolean isRefused(Invocation invocation) {
        RefusedBodies bodies = pending.retries().bodies();
        if (!bodies.mayHold(invocation.bodyBytes())) {
            return false;
        }
        SortedSet<Integer> records = bodies.find(invocation.hash());
        if (records == null) {
            return false;
        }
        Attempt.tellRefused(records, invocation.getPayload().getHeaders());
        return records.isEmpty();
    }

    private static boolean enqueue(Invocation invocation) {
        try {
            return ModelManager.getInstance().addJob(invocation);
        } catch (ModelNotFoundException | ModelVersionNotFoundException unregistered) {
            throw new IllegalStateException("The model was unregistered while it was called", unregistered);
        }
    }

    /**
     * The headers under their names as sent. Repeated fields are joined (RFC 9110, section 5.3), since TorchServe
     * hands the worker one value per name. The id in use replaces whatever the caller sent as one, and the names that
     * this frontend and its worker use between them are no caller's.
     */
    private static Map<String, String> headers(FullHttpRequest request, String id) {
        Map<String, String> headers = new LinkedHashMap<>();
        Map<String, String> firstSpelling = new HashMap<>();
        for (Map.Entry<String, String> field : request.headers()) {
            String name = firstSpelling.computeIfAbsent(
                    field.getKey().toLowerCase(Locale.ROOT), lower -> field.getKey());
            headers.merge(name, field.getValue(), (first, next) -> first + ", " + next);
        }
        headers.keySet().removeIf(name -> name.toLowerCase(Locale.ROOT).startsWith(INTERNAL_PREFIX));
        headers.remove(firstSpelling.getOrDefault(Exchange.REQUEST_ID, ""));
        headers.put(Exchange.REQUEST_ID, id);
        return headers;
    }

    /**
     * The whole body under the one name {@code body}, whatever its type: TorchServe takes forms apart, and a handler
     * could then no longer tell what was sent. A subclass, because TorchServe's own class copies the bytes again.
     */
    private static final class Body extends InputParameter {
        private final byte[] bytes;
        private final String contentType;

        Body(byte[] bytes, String contentType) {
            this.bytes = bytes;
            this.contentType = contentType;
        }

        @Override
        public String getName() {
            return "body";
        }

        @Override
        public byte[] getValue() {
            return bytes;
        }

        @Override
        public CharSequence getContentType() {
            return contentType;
        }
    }
}
