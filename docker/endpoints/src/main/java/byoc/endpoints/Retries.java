package byoc.endpoints;

import io.netty.util.concurrent.GlobalEventExecutor;
import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.OptionalInt;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What becomes of the calls of a worker that ended. Those it had not begun go to the next one at once. Those it was
 * running are suspects: each is run again, once, after the others are answered and in no other call's company, so that
 * a call that ends workers harms its neighbours no second time. One that ends a worker even so is refused, and so is
 * its body from then on; where the record at fault is known, that record alone.
 */
final class Retries {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");

    /** Workers that may end under a call by no fault of its own. */
    private static final int MOST_DEATHS = 4;

    /** Records of one body that are found out, each at the cost of a worker. */
    private static final int MOST_RECORDS = 8;

    private static final int LOOK_MILLISECONDS = 100;

    private final PendingCalls pending;
    private final RefusedBodies bodies = new RefusedBodies();
    private final Set<Invocation> innocent = new HashSet<>();
    private final Deque<Invocation> suspects = new ArrayDeque<>();
    private Invocation onTrial;
    private boolean looking;

    Retries(PendingCalls pending) {
        this.pending = pending;
    }

    RefusedBodies bodies() {
        return bodies;
    }

    /** A worker ended while it owed these calls their answers. */
    void afterDeath(WorkerDeath death, List<Invocation> owed) {
        List<Invocation> begunCalls =
                owed.stream().filter(call -> death.record(call.id()).isPresent()).toList();
        boolean explained = !death.replaced() && begunCalls.size() == 1 && begunCalls.get(0).attempt().alone();
        int run = 0;
        int tried = 0;
        List<Invocation> youngestFirst = owed.stream()
                .sorted(Comparator.comparingLong(Invocation::order).reversed())
                .toList();
        for (Invocation call : youngestFirst) {
            OptionalInt record = death.record(call.id());
            boolean begun = record.isPresent();
            if (!call.isUnanswered() || !death.known() || begun && !death.repeatable()) {
                call.workerEnded(death.killed());
            } else if (begun && explained) {
                condemn(call, record.getAsInt());
            } else if (call.attempt().alone() || begun && !explained) {
                tried += trial(call) ? 1 : 0;
            } else {
                run += again(call, death.killed()) ? 1 : 0;
            }
        }
        if (run + tried > 0) {
            LOG.warn("A worker ended before it answered {} calls: {} go to the next one, {} that it was running follow "
                    + "one by one", owed.size(), run, tried);
        }
        release();
    }

    /** TorchServe took the call from its queue and lost it; no worker ever had it. */
    void afterLoss(Invocation call) {
        if (call.attempt().alone() ? trial(call) : again(call, false)) {
            release();
        }
    }

    /** Puts a call back before all that wait; returns whether it is run again. */
    private boolean again(Invocation call, boolean killed) {
        if (call.attempt().deaths() >= MOST_DEATHS || call.isOutOfTime(System.nanoTime())) {
            call.workerEnded(killed);
            return false;
        }
        Invocation next = call.next(false, call.attempt().refused());
        synchronized (this) {
            innocent.remove(call); // where it died again: nobody settles a try that another follows
            innocent.add(next);
        }
        next.enqueueFirst();
        return true;
    }

    private boolean trial(Invocation call) {
        if (call.attempt().deaths() >= MOST_DEATHS) {
            call.workerEnded(false); // never found out: somebody else was being read or run each time
            return false;
        }
        return trial(call, call.attempt().refused(), false);
    }

    private boolean trial(Invocation call, SortedSet<Integer> refused, boolean soon) {
        Invocation next = call.next(true, refused);
        synchronized (this) {
            innocent.remove(call);
            if (onTrial == call) {
                onTrial = null;
            }
            if (soon) {
                suspects.addFirst(next);
            } else {
                suspects.addLast(next);
            }
        }
        return next.isOpen();
    }

    /** The call ended a worker that ran it alone, after another had ended with it. */
    private void condemn(Invocation call, int record) {
        String hash = call.hash();
        bodies.add(hash, call.bodyBytes(), record);
        LOG.error("Request {} ended two workers, the second by itself{}: it is refused from now on (SHA-256 {})",
                call.callerId(), record > 0 ? ", at record " + record : "", hash);
        TreeSet<Integer> refused = new TreeSet<>(call.attempt().refused());
        if (record > 0 && refused.add(record) && refused.size() <= MOST_RECORDS) {
            trial(call, refused, true); // the worker says which record it was, in the form that the caller asked for
        } else {
            call.poisonous();
        }
    }

    /** A call that was run again has its answer, or its caller left. */
    void settled(Invocation call) {
        synchronized (this) {
            innocent.remove(call);
            suspects.remove(call);
            if (onTrial == call) {
                onTrial = null;
            }
        }
        release();
    }

    /** Lets the next suspect run, once no other is running, the innocent are answered, and a worker is there. */
    private void release() {
        Invocation next;
        synchronized (this) {
            if (onTrial != null || !innocent.isEmpty() || suspects.isEmpty()) {
                return; // whoever settles comes here again
            }
            if (!suspects.getFirst().canRun()) {
                lookLater();
                return;
            }
            next = suspects.removeFirst();
            onTrial = next;
        }
        next.enqueueFirst();
    }

    private void lookLater() {
        if (!looking) {
            looking = true;
            GlobalEventExecutor.INSTANCE.schedule(this::look, LOOK_MILLISECONDS, TimeUnit.MILLISECONDS);
        }
    }

    private void look() {
        synchronized (this) {
            looking = false;
        }
        release();
    }

    /** Whether the call waits here, and not in TorchServe's queue. */
    synchronized boolean holds(Invocation call) {
        return suspects.contains(call);
    }
}
