package byoc.endpoints;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;

/**
 * What counting one call takes by itself: prints nanoseconds of CPU time, the median of several rounds. As in the
 * frontend, two threads count at once, and every so many calls the worker tells of a batch.
 */
final class Counting implements Runnable {
    private static final int ROUNDS = 11;
    private static final int CALLS = 1_000_000;
    private static final int BATCH = 32;
    private static final String TOLD =
            "requests=32;tokens=0;padding=0;truncated=0;handler_s=0.00123;forward_s=0.00101;microbatches=32";

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final CountedMetrics metrics;
    private double nanoseconds;

    private Counting(CountedMetrics metrics) {
        this.metrics = metrics;
    }

    public static void main(String[] arguments) throws InterruptedException {
        CountedMetrics metrics = new CountedMetrics("nothing", new Metrics(model -> 0, () -> 1));
        double[] rounds = new double[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            Counting one = new Counting(metrics);
            Counting other = new Counting(metrics);
            Thread beside = new Thread(other);
            beside.start();
            one.run();
            beside.join();
            rounds[round] = (one.nanoseconds + other.nanoseconds) / 2;
        }
        Arrays.sort(rounds);
        System.out.println(rounds[ROUNDS / 2]);
    }

    @Override
    public void run() {
        long began = THREADS.getCurrentThreadCpuTime();
        for (int call = 0; call < CALLS; call++) {
            metrics.entered();
            metrics.queued(call % 1_000 / 1e6);
            metrics.records(1, 0);
            if (call % BATCH == 0) {
                metrics.batch(BatchReport.parse(TOLD));
            }
            metrics.answered(200, 1, call % 10_000 * 1_000L);
            metrics.left();
        }
        nanoseconds = (double) (THREADS.getCurrentThreadCpuTime() - began) / CALLS;
    }
}
