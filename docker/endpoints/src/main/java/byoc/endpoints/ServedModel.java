package byoc.endpoints;

import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.pytorch.serve.wlm.Model;
import org.pytorch.serve.wlm.WorkerThread;

/**
 * One model of several: where it is in its life, its calls, and what became of its workers. It goes one way, from loading
 * over loaded and unloading to gone, or from loading to gone; who loads it again gets another.
 *
 * <p>TorchServe knows it by an identifier of ours, so that the life of one never gets mixed with that of its successor.
 */
final class ServedModel {
    static final String UNLOADING = "The model is being unloaded; load it again with POST /models.";

    /** Where a model is in its life. */
    enum State { LOADING, LOADED, UNLOADING, GONE }

    private final String name;
    private final String url;
    private final String id;
    private final PendingCalls pending;
    private final InvocationDesk desk;
    private final WorkerStarts starts = new WorkerStarts();
    private final Set<WorkerThread> pausing = ConcurrentHashMap.newKeySet();
    private final Set<WorkerThread> restarting = ConcurrentHashMap.newKeySet();
    private final CompletableFuture<Void> settled = new CompletableFuture<>();
    private final CompletableFuture<Void> gone = new CompletableFuture<>();
    private volatile State state = State.LOADING;
    private volatile Model model;
    private volatile ModelMetrics metrics;
    private volatile long lastUsed = System.nanoTime();
    private volatile String failure;

    ServedModel(String name, String url, String id, PendingCalls pending, InvocationDesk desk) {
        this.name = name;
        this.url = url;
        this.id = id;
        this.pending = pending;
        this.desk = desk;
    }

    String name() {
        return name;
    }

    String url() {
        return url;
    }

    String id() {
        return id;
    }

    PendingCalls pending() {
        return pending;
    }

    InvocationDesk desk() {
        return desk;
    }

    WorkerStarts starts() {
        return starts;
    }

    /** Workers that will run again. */
    Set<WorkerThread> pausing() {
        return pausing;
    }

    /** Workers that run again. */
    Set<WorkerThread> restarting() {
        return restarting;
    }

    State state() {
        return state;
    }

    /** Completes when it is loaded, or could not be. */
    CompletableFuture<Void> settled() {
        return settled;
    }

    /** Completes when nothing of it is left, and its name is free. */
    CompletableFuture<Void> gone() {
        return gone;
    }

    /** TorchServe's part of it; null before it is registered there. */
    Model model() {
        return model;
    }

    void registered(Model registered) {
        model = registered;
    }

    void used() {
        lastUsed = System.nanoTime();
    }

    long lastUsed() {
        return lastUsed;
    }

    /** Why its workers are no longer started; null while they are. */
    String failure() {
        return failure;
    }

    void fail(String sentence) {
        failure = sentence;
    }

    /** Its numbers, once it is loaded. */
    ModelMetrics metrics() {
        return metrics;
    }

    void loaded(ModelMetrics numbers) {
        metrics = numbers;
        used();
        state = State.LOADED;
        settled.complete(null);
    }

    /** Takes the loaded model out of service; false when it is not loaded, or somebody else does so already. */
    synchronized boolean beginUnloading() {
        if (state != State.LOADED) {
            return false;
        }
        state = State.UNLOADING;
        return true;
    }

    /** Notes that a worker runs again, unless the model is on its way out; whether it may. */
    synchronized boolean beginRestart(WorkerThread worker) {
        pausing.remove(worker);
        return state == State.LOADED && restarting.add(worker);
    }

    void end() {
        state = State.GONE;
        settled.complete(null);
        gone.complete(null);
    }
}
