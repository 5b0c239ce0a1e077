package byoc.endpoints;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What a batch transform job came to, one line a minute and one at its end: nobody scrapes the metrics of a container
 * that is gone when the job is.
 */
final class JobSummary {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");
    private static final long PERIOD_NANOSECONDS = 60_000_000_000L;

    private final ModelMetrics metrics;
    private long toldAt = System.nanoTime();
    private double told;

    JobSummary(ModelMetrics metrics) {
        this.metrics = metrics;
    }

    /** To be called often: tells a minute after it told last, if there is anything new. */
    void tellWhenDue() {
        if (System.nanoTime() - toldAt >= PERIOD_NANOSECONDS) {
            tell("job so far");
        }
    }

    /** Tells the whole job, at its end. */
    void tellAll() {
        told = 0;
        tell("job");
    }

    private void tell(String title) {
        toldAt = System.nanoTime();
        ModelMetrics.Totals totals = metrics.totals();
        if (totals.records() == told) {
            return;
        }
        told = totals.records();
        double seconds = Math.max(1e-3, totals.seconds());
        LOG.info("{}: {} records in {} s ({} records/s, {} tokens/s), {} of them failed, {} cut to the length of the model",
                title, whole(totals.records()), whole(seconds), whole(totals.records() / seconds),
                whole(totals.tokens() / seconds), whole(totals.failed()), whole(totals.truncated()));
    }

    private static String whole(double number) {
        return String.format("%,d", Math.round(number));
    }
}
