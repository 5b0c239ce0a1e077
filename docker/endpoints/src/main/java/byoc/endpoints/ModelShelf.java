package byoc.endpoints;

import com.google.gson.JsonObject;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpResponseStatus;
import java.io.IOException;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The models of a multi-model endpoint by their names: loaded and unloaded one after the other where the name is the same,
 * side by side where it is not. A name is taken from the moment somebody begins to load it until nothing of it is left.
 */
final class ModelShelf {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");
    private static final int UNLOADS_AT_ONCE = 8;

    /** In the place of a model's name, for calls that are none's. */
    private static final String NO_MODEL = "";

    private static final int IDLE_SECONDS = 30;

    private final Settings settings;
    private final Readiness readiness;
    private final PendingCalls pending;
    private final Metrics metrics;
    private final Preparer preparer;
    private final ModelWorkers workers;
    private final Room room;
    private final Map<String, ServedModel> models = new ConcurrentHashMap<>();
    private final AtomicLong numbers = new AtomicLong();
    private final ThreadPoolExecutor loading;
    private final ThreadPoolExecutor unloading = pool("byoc-unload", UNLOADS_AT_ONCE);

    ModelShelf(Settings settings, Readiness readiness, PendingCalls pending, Metrics metrics) {
        this.settings = settings;
        this.readiness = readiness;
        this.pending = pending;
        this.metrics = metrics;
        preparer = new Preparer(settings.preparer());
        workers = new ModelWorkers(preparer);
        room = new Room(preparer, () -> settings.evictModels() && evictOne());
        loading = pool("byoc-load", Math.max(1, settings.parallelLoads()));
        try {
            preparer.start(); // it imports while TorchServe starts
        } catch (IOException fault) {
            throw new IllegalArgumentException("the process that prepares models cannot be started: " + fault.getMessage(), fault);
        }
    }

    private static ThreadPoolExecutor pool(String name, int threads) {
        ThreadPoolExecutor pool =
                new ThreadPoolExecutor(threads, threads, IDLE_SECONDS, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), task -> {
                    Thread thread = new Thread(task, name);
                    thread.setDaemon(true);
                    return thread;
                });
        pool.allowCoreThreadTimeOut(true);
        return pool;
    }

    /** Every model that can be called, in the order of their names. */
    List<ServedModel> loaded() {
        return models.values().stream()
                .filter(served -> served.state() == ServedModel.State.LOADED)
                .sorted(Comparator.comparing(ServedModel::name))
                .toList();
    }

    /** Calls that wait for a worker of the model of that name. */
    int waiting(String name) {
        return loaded(name).map(served -> served.model().getPendingRequestsInJobQueue()).orElse(0);
    }

    /** The model of that name, if it can be called. */
    Optional<ServedModel> loaded(String name) {
        return Optional.ofNullable(models.get(name)).filter(served -> served.state() == ServedModel.State.LOADED);
    }

    /** Queues the call, or refuses it at once. */
    void call(String name, Exchange exchange) {
        ServedModel served = models.get(name);
        if (readiness.isStopping()) {
            exchange.answer(readiness.refusalOfCalls());
        } else if (served == null) {
            exchange.answer(absent(name));
        } else if (served.state() == ServedModel.State.LOADING) {
            exchange.answer(Readiness.State.STARTING.refusal());
        } else if (served.state() != ServedModel.State.LOADED) {
            exchange.answer(ErrorType.NOT_FOUND.response(ServedModel.UNLOADING));
        } else if (Workers.anyLoaded(served.model())) {
            served.used();
            served.desk().queue(exchange, served.model());
        } else {
            String failure = served.failure();
            exchange.answer(
                    failure == null ? Readiness.State.RESTARTING.refusal() : ErrorType.WORKER_LOST.response(failure));
        }
    }

    /** In whose numbers a call is counted; names that callers make up have none of their own. */
    ModelMetrics metricsOf(Exchange exchange) {
        ServedModel served = exchange.path().equals(Exchange.INVOCATIONS) ? null : named(exchange.path());
        return served == null || served.state() != ServedModel.State.LOADED ? metrics.of(NO_MODEL) : served.metrics();
    }

    private ServedModel named(String path) {
        try {
            return models.get(ModelPath.parse(path).name());
        } catch (IllegalArgumentException nameless) {
            return null;
        }
    }

    static FullHttpResponse absent(String name) {
        return ErrorType.NOT_FOUND.response("There is no model " + ModelPath.quoted(name) + "; load it with POST /models.");
    }

    /** Loads a model; the answer comes when it is ready to be called, or when nothing is left of the attempt. */
    CompletableFuture<FullHttpResponse> load(String name, String url) {
        if (readiness.isStopping()) {
            return CompletableFuture.completedFuture(readiness.refusalOfCalls());
        }
        PendingCalls calls = pending.ofModel();
        InvocationDesk desk = new InvocationDesk(settings, readiness, calls);
        ServedModel fresh = new ServedModel(name, url, "m" + numbers.incrementAndGet(), calls, desk);
        ServedModel present = models.putIfAbsent(name, fresh);
        if (present == null) {
            return CompletableFuture.supplyAsync(() -> load(fresh), loading);
        }
        pending.forget(calls);
        if (present.state() == ServedModel.State.LOADED || present.state() == ServedModel.State.LOADING) {
            String how = present.state() == ServedModel.State.LOADED ? " is loaded already" : " is being loaded";
            return CompletableFuture.completedFuture(ErrorType.CONFLICT.response("The model " + ModelPath.quoted(name) + how + "."));
        }
        return present.gone().thenComposeAsync(gone -> load(name, url), unloading);
    }

    private FullHttpResponse load(ServedModel served) {
        long begun = System.nanoTime();
        try {
            JsonObject question = new JsonObject();
            question.addProperty("model", served.id());
            question.addProperty("url", served.url());
            JsonObject prepared = preparer.ask("prepare", question);
            Room.Need need = Room.Need.of(prepared.getAsJsonObject("needs"));
            room.take(need);
            try {
                workers.start(served, prepared);
            } finally {
                room.giveBack(need);
            }
            long taken = workers.measure(served);
            served.loaded(metrics.of(served.name()));
            LOG.info("model {} loaded in {} s, {} MiB", served.name(), secondsSince(begun), taken >> 20);
            return ErrorType.json(HttpResponseStatus.OK, described(served));
        } catch (LoadRefused refused) {
            LOG.warn("model {} is not loaded: {}", served.name(), refused.getMessage());
            remove(served);
            return refused.response();
        } catch (InterruptedException | RuntimeException | OutOfMemoryError fault) {
            LOG.error("model {} is not loaded", served.name(), fault);
            remove(served);
            return ErrorType.MODEL_ERROR.response("The model could not be loaded; the container's log says why.");
        }
    }

    /** Unloads a model; the answer comes when its workers are gone and their memory is back. */
    CompletableFuture<FullHttpResponse> unload(String name) {
        ServedModel served = models.get(name);
        if (served == null) {
            return CompletableFuture.completedFuture(absent(name));
        }
        return served.settled().thenApplyAsync(
                settled -> served.beginUnloading() ? unload(served) : absent(name), unloading);
    }

    private FullHttpResponse unload(ServedModel served) {
        long begun = System.nanoTime();
        try {
            answerCallsOf(served);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
        if (!remove(served)) {
            return ErrorType.MODEL_ERROR.response("The model's worker does not end; the container's log says more.");
        }
        LOG.info("model {} unloaded in {} s", served.name(), secondsSince(begun));
        return ErrorType.json(HttpResponseStatus.OK, described(served));
    }

    /** Those in flight get their answers, as long as the model may take for one. */
    private static void answerCallsOf(ServedModel served) throws InterruptedException {
        served.pending().close();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(served.model().getResponseTimeout());
        while (!served.pending().isEmpty() && System.nanoTime() - deadline < 0 && Workers.anyLoaded(served.model())) {
            Thread.sleep(1);
        }
    }

    /** Frees the name when nothing is left of the model; false when its workers do not end. */
    private boolean remove(ServedModel served) {
        boolean ended = false;
        try {
            ended = workers.takeDown(served);
        } catch (InterruptedException | RuntimeException fault) {
            LOG.error("model {} cannot be taken down", served.name(), fault);
        }
        served.pending().close();
        served.pending().loseAll();
        pending.forget(served.pending());
        metrics.remove(served.name());
        models.remove(served.name(), served);
        served.end();
        return ended;
    }

    /** Unloads the model that was called longest ago, of those that nobody calls now; false when there is none. */
    private boolean evictOne() {
        long now = System.nanoTime();
        Optional<ServedModel> spared = models.values().stream()
                .filter(served -> served.state() == ServedModel.State.LOADED && served.pending().isEmpty())
                .min(Comparator.comparingLong(served -> served.lastUsed() - now));
        if (spared.isEmpty()) {
            return false;
        }
        ServedModel served = spared.get();
        if (served.beginUnloading()) { // else somebody else unloads it, which makes room as well
            LOG.info("model {} makes room for another: nobody called it for {} s", served.name(), secondsSince(served.lastUsed()));
            unload(served);
        } else {
            served.gone().join();
        }
        return true;
    }

    /** Notes that the model's workers end again and again, and why; its calls are refused with that. */
    void giveUp(ServedModel served, int failures) {
        String what = "Unload the model and load it again, for its worker could not be started " + failures + " times in a row";
        served.fail(what + "; the container's log says why.");
        unloading.execute(() -> {
            try {
                served.fail(workers.reason(served, what));
                LOG.error("model {} is given up: {}", served.name(), served.failure());
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        });
    }

    /** What is told of a model; more than the platform asks for does no harm. */
    static JsonObject described(ServedModel served) {
        JsonObject description = new JsonObject();
        description.addProperty("modelName", served.name());
        description.addProperty("modelUrl", served.url());
        return description;
    }

    private static double secondsSince(long begun) {
        return Math.round((System.nanoTime() - begun) / 1e7) / 100.0;
    }
}
