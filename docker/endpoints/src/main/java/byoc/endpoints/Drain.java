package byoc.endpoints;

import java.util.Optional;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The JVM's shutdown hook: an ordered stop on SIGTERM. New calls are refused while the port stays open, so that
 * callers get an answer and not a refused connection; the calls in flight are answered; then everything ends. Calls
 * that the model does not answer in time are refused, and the exit code tells.
 *
 * <p>Log4j's configuration must say {@code shutdownHook="disable"}, for otherwise logging ends when the drain begins.
 */
final class Drain implements Runnable {
    static final int EXIT_CALLS_LOST = 5;

    /** Time for refusals to get through to the callers that a drain left without an answer. */
    private static final int REFUSAL_SECONDS = 1;

    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");

    private final Settings settings;
    private final Readiness readiness;
    private final InFlight inFlight;
    private final PendingCalls pending;
    private final Optional<EmbeddedMetrics> embedded;
    private final Optional<JobSummary> summary;
    private final TraceFeed traces;

    Drain(
            Settings settings,
            Readiness readiness,
            InFlight inFlight,
            PendingCalls pending,
            Optional<EmbeddedMetrics> embedded,
            Optional<JobSummary> summary,
            TraceFeed traces) {
        this.settings = settings;
        this.readiness = readiness;
        this.inFlight = inFlight;
        this.pending = pending;
        this.embedded = embedded;
        this.summary = summary;
        this.traces = traces;
    }

    @Override
    public void run() {
        int lost = 0;
        try {
            readiness.stop();
            LOG.info("stopping: {} calls in flight, which have {} s to be answered", inFlight.count(), settings.drainSeconds());
            lost = inFlight.awaitNone(settings.drainSeconds());
            if (lost > 0) {
                pending.refuseAll();
                inFlight.awaitNone(REFUSAL_SECONDS);
            }
            Workers.endAll();
            embedded.ifPresent(EmbeddedMetrics::tellAll);
            summary.ifPresent(JobSummary::tellAll);
            traces.end();
            if (lost > 0) { // else the entrypoint, which sees the exit code, has the last word
                LOG.error("stopped: {} calls were still unanswered and were refused", lost);
            }
        } catch (InterruptedException interrupted) {
            lost = inFlight.count();
        } finally {
            Runtime.getRuntime().halt(lost == 0 ? 0 : EXIT_CALLS_LOST);
        }
    }
}
