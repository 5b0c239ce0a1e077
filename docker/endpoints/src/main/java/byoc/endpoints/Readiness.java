package byoc.endpoints;

import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import java.util.Set;
import org.pytorch.serve.archive.model.ModelVersionNotFoundException;
import org.pytorch.serve.wlm.Model;
import org.pytorch.serve.wlm.ModelManager;

/**
 * Whether the server can answer calls, asked of the workers themselves each time: TorchServe's own health check
 * says yes while models load and long after their workers died.
 */
final class Readiness {
    /** Where the server is in its life, and what it says of that. */
    enum State {
        READY(null, null),
        STARTING(ErrorType.NOT_READY, "The model is being loaded."),
        RESTARTING(ErrorType.NOT_READY, "The worker ended and is being restarted."),
        STOPPING(ErrorType.STOPPING, "The server is stopping and takes no new calls.");

        private final ErrorType type;
        private final String sentence;

        State(ErrorType type, String sentence) {
            this.type = type;
            this.sentence = sentence;
        }

        FullHttpResponse refusal() {
            return type.response(sentence);
        }
    }

    private volatile Set<String> startupModels = Set.of();
    private volatile boolean wasReady;
    private volatile boolean stopping;
    private volatile boolean withoutModels;

    /** The models that must have a loaded worker; before they are known, nothing is ready. */
    void expect(Set<String> models) {
        startupModels = Set.copyOf(models);
    }

    /** No model is expected, now or ever: ready is who listens. */
    void expectNone() {
        withoutModels = true;
    }

    Set<String> expected() {
        return startupModels;
    }

    void stop() {
        stopping = true;
    }

    boolean isStopping() {
        return stopping;
    }

    /** Whether a model was ever loaded, by whoever first looked: until then, a worker that ends could not load it. */
    boolean wasReady() {
        return wasReady;
    }

    State state() {
        if (stopping) {
            return State.STOPPING;
        }
        if (withoutModels || allLoaded()) {
            wasReady = true;
            return State.READY;
        }
        return wasReady ? State.RESTARTING : State.STARTING;
    }

    private boolean allLoaded() {
        Set<String> names = startupModels;
        for (String name : names) {
            if (!Workers.anyLoaded(model(name))) {
                return false;
            }
        }
        return !names.isEmpty();
    }

    /** The default version of the model of that name, or null when there is none. */
    Model model(String name) {
        try {
            return ModelManager.getInstance().getModel(name, null);
        } catch (ModelVersionNotFoundException unregistered) {
            return null;
        }
    }

    /** The answer to a call that no worker can take. */
    FullHttpResponse refusalOfCalls() {
        State state = state();
        if (state == State.READY) { // a worker was loaded in the meantime; the next try will find it
            state = State.RESTARTING;
        }
        FullHttpResponse refusal = state.refusal();
        if (state == State.STOPPING) {
            refusal.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
        }
        return refusal;
    }
}
