package byoc.endpoints;

import io.netty.handler.codec.http.FullHttpResponse;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The calls that TorchServe holds, and the promise that each of them is answered. TorchServe breaks it: a worker
 * that dies while it waits for a batch to fill takes the calls it had already fetched with it, without a word to
 * anyone. {@link #sweep} finds such calls by what can no longer be true of a call that is still in the queue.
 */
final class PendingCalls {
    /** What TorchServe itself may need beyond a response timeout to notice it. */
    private static final long GRACE = TimeUnit.SECONDS.toNanos(5);

    /** How far calls on two event loops may enter the queue out of the order in which they began. */
    private static final long DISORDER = TimeUnit.SECONDS.toNanos(2);

    private final Set<Invocation> calls = ConcurrentHashMap.newKeySet();
    private final Set<PendingCalls> ofModels = ConcurrentHashMap.newKeySet();
    private final AtomicLong bytes;
    private final Retries retries = new Retries(this);
    private final long maxBytes;
    private volatile boolean closed;
    private final Object lock = new Object();
    private long newestTaken = System.nanoTime();
    private long lastTaken = newestTaken;
    private long lastWithoutWorker = newestTaken;

    PendingCalls(long maxBytes) {
        this(maxBytes, new AtomicLong());
    }

    private PendingCalls(long maxBytes, AtomicLong bytes) {
        this.maxBytes = maxBytes;
        this.bytes = bytes;
    }

    /** The calls of one model of several: a queue of their own, bodies within the same memory. */
    PendingCalls ofModel() {
        PendingCalls calls = new PendingCalls(maxBytes, bytes);
        ofModels.add(calls);
        return calls;
    }

    /** A model is gone, and its calls with it. */
    void forget(PendingCalls calls) {
        ofModels.remove(calls);
    }

    /** Admits no more. */
    void close() {
        closed = true;
    }

    boolean isEmpty() {
        return calls.isEmpty();
    }

    /**
     * Takes the call in, unless its body is one too many: a queue that is bounded only by its length would fill the
     * heap with long bodies. A call that is alone is always taken.
     */
    boolean admit(Invocation call) {
        long now = bytes.addAndGet(call.bodyBytes());
        if (now > maxBytes && now > call.bodyBytes()) {
            bytes.addAndGet(-call.bodyBytes());
            return false;
        }
        calls.add(call);
        if (closed) { // looked at behind the entry, so that who closes and then looks sees the call, or it sees him
            remove(call);
            return false;
        }
        return true;
    }

    /** Counts so many bytes of a body that is being received, of which {@code held} are counted already. */
    boolean receive(int size, long held) {
        long now = bytes.addAndGet(size);
        if (now > maxBytes && now > held + size) {
            bytes.addAndGet(-size);
            return false;
        }
        return true;
    }

    /** Counts a whole body that waits on its connection, which is too late to refuse it. */
    void hold(long held) {
        bytes.addAndGet(held);
    }

    /** Bytes that were received or held are so no longer. */
    void giveBack(long held) {
        bytes.addAndGet(-held);
    }

    /** The answer to a call that was not admitted. */
    FullHttpResponse refusal() {
        return closed ? ErrorType.NOT_FOUND.response(ServedModel.UNLOADING) : overBudget();
    }

    /** The answer to a call whose body is one too many. */
    FullHttpResponse overBudget() {
        return ErrorType.OVERLOADED.response("The bodies of the calls that wait take " + maxBytes / 1048576
                + " MiB, which is all the memory there is for them; send it again in a second, send less at once, or "
                + "give the container more memory.");
    }

    Retries retries() {
        return retries;
    }

    /** The same call, and the same body, once more. */
    void replace(Invocation call, Invocation next) {
        if (calls.remove(call)) {
            calls.add(next);
        }
    }

    void remove(Invocation call) {
        if (calls.remove(call)) {
            bytes.addAndGet(-call.bodyBytes());
        }
    }

    /** A worker took the call from the queue. */
    void taken(Invocation call) {
        synchronized (lock) {
            lastTaken = System.nanoTime();
            if (call.order() - newestTaken > 0) {
                newestTaken = call.order();
            }
        }
    }

    /** Refuses all that is pending; for the end, when no answer will come any more. */
    void refuseAll() {
        calls.forEach(Invocation::stopped);
        ofModels.forEach(PendingCalls::refuseAll);
    }

    /** Answers what is pending, since no worker is left that could. */
    void loseAll() {
        calls.forEach(Invocation::lost);
    }

    /** Answers the calls that TorchServe lost; to be called about once a second. */
    void sweep(boolean workerLoaded) {
        long now = System.nanoTime();
        long queueMoved;
        long overtaken;
        synchronized (lock) {
            if (!workerLoaded) {
                lastWithoutWorker = now;
            }
            overtaken = newestTaken - DISORDER;
            queueMoved = lastWithoutWorker - lastTaken > 0 ? lastWithoutWorker : lastTaken;
        }
        for (Invocation call : calls) {
            long patience = TimeUnit.SECONDS.toNanos(call.timeoutSeconds()) + GRACE;
            if (call.isOutOfTime(now)) {
                call.outOfTime();
            } else if (call.isTaken()) {
                if (now - call.lastSign() > (call.isLeftToWorker() ? patience - GRACE : patience)) {
                    call.overdue();
                }
            } else if (!call.attempt().isFirst() && retries.holds(call)) {
                continue; // it is in nobody's queue yet
            } else if (overtaken - call.queuedAt() > 0) {
                call.overtaken(); // a younger call left the queue: this one is not in it any more
            } else if (now - call.queuedAt() > patience && now - queueMoved > patience) {
                call.lost(); // a worker is loaded, and it takes a call at least once per response timeout
            }
        }
    }
}
