package byoc.endpoints;

import java.util.concurrent.TimeUnit;

/** Counts the calls of {@code /invocations} between their last byte in and their last byte out. */
final class InFlight {
    private int count;

    synchronized void enter() {
        count++;
    }

    synchronized void leave() {
        count--;
        if (count == 0) {
            notifyAll();
        }
    }

    synchronized int count() {
        return count;
    }

    /** Waits until nothing is in flight; returns how many still are when the time is up. */
    synchronized int awaitNone(int seconds) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (count > 0) {
            long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            if (left <= 0) {
                return count;
            }
            wait(left);
        }
        return 0;
    }
}
