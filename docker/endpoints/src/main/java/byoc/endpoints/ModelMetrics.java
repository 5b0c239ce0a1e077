package byoc.endpoints;

import io.prometheus.client.Counter;
import io.prometheus.client.Gauge;
import io.prometheus.client.Histogram;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What happens to one model, counted. Its series are looked up once, when the model comes: a call costs no search for a
 * label. Safe from every thread, also after the model has gone.
 */
final class ModelMetrics {
    private static final int[] EXPECTED_STATUSES = {200, 400, 413, 415, 500, 503, 504};

    private final String model;
    private final Counter requests;
    private final Map<Integer, Counter.Child> requestsByStatus = new ConcurrentHashMap<>();
    private final Counter.Child goodRecords;
    private final Counter.Child badRecords;
    private final Counter.Child tokens;
    private final Counter.Child padding;
    private final Counter.Child truncated;
    private final Counter.Child forwardPasses;
    private final Gauge.Child inFlight;
    private final Histogram.Child batchRequests;
    private final Histogram.Child microbatchRecords;
    private final Histogram.Child queueSeconds;
    private final Histogram.Child handlerSeconds;
    private final Histogram.Child forwardSeconds;

    private long firstArrival;
    private long lastAnswer;

    ModelMetrics(String model, Metrics all) {
        this.model = model;
        requests = all.requests;
        for (int status : EXPECTED_STATUSES) {
            ofStatus(status);
        }
        goodRecords = all.records.labels(model, "ok");
        badRecords = all.records.labels(model, "error");
        tokens = all.tokens.labels(model);
        padding = all.padding.labels(model);
        truncated = all.truncated.labels(model);
        forwardPasses = all.forwardPasses.labels(model);
        inFlight = all.inFlight.labels(model);
        batchRequests = all.batchRequests.labels(model);
        microbatchRecords = all.microbatchRecords.labels(model);
        queueSeconds = all.queueSeconds.labels(model);
        handlerSeconds = all.handlerSeconds.labels(model);
        forwardSeconds = all.forwardSeconds.labels(model);
    }

    private Counter.Child ofStatus(int status) {
        return requestsByStatus.computeIfAbsent(status, code -> requests.labels(model, Integer.toString(code)));
    }

    /** Takes all series of the model out of {@code all}. */
    void drop(Metrics all) {
        requestsByStatus.keySet().forEach(status -> requests.remove(model, Integer.toString(status)));
        all.records.remove(model, "ok");
        all.records.remove(model, "error");
        all.tokens.remove(model);
        all.padding.remove(model);
        all.truncated.remove(model);
        all.forwardPasses.remove(model);
        all.inFlight.remove(model);
        all.batchRequests.remove(model);
        all.microbatchRecords.remove(model);
        all.queueSeconds.remove(model);
        all.handlerSeconds.remove(model);
        all.forwardSeconds.remove(model);
    }

    /** A call is complete and waits for its answer, until {@link #left}. */
    void entered() {
        inFlight.inc();
    }

    void left() {
        inFlight.dec();
    }

    void answered(int status) {
        Counter.Child counter = requestsByStatus.get(status);
        (counter == null ? ofStatus(status) : counter).inc();
    }

    void queued(double seconds) {
        queueSeconds.observe(Math.max(0, seconds));
    }

    /**
     * Sums since the start.
     *
     * @param records answered, the failed ones among them
     * @param failed records with an error for an answer
     * @param truncated records cut to the length of the model
     * @param tokens that carried text
     * @param seconds from the first call's arrival to the last answer
     */
    record Totals(double records, double failed, double truncated, double tokens, double seconds) {}

    Totals totals() {
        double failed = badRecords.get();
        return new Totals(goodRecords.get() + failed, failed, truncated.get(), tokens.get(), seconds());
    }

    private synchronized double seconds() {
        return firstArrival == 0 ? 0 : (lastAnswer - firstArrival) / 1e9;
    }

    /** A call arrived, some time ago, and is answered now. */
    synchronized void span(long arrived) {
        firstArrival = firstArrival == 0 ? arrived : Math.min(firstArrival, arrived);
        lastAnswer = System.nanoTime();
    }

    void records(double good, double bad) {
        goodRecords.inc(good);
        badRecords.inc(bad);
    }

    void batch(BatchReport report) {
        report.numbers().forEach((name, value) -> {
            switch (name) {
                case "requests" -> batchRequests.observe(value);
                case "tokens" -> tokens.inc(value);
                case "padding" -> padding.inc(value);
                case "truncated" -> truncated.inc(value);
                case "handler_s" -> handlerSeconds.observe(value);
                case "forward_s" -> forwardSeconds.observe(value);
                default -> { } // a newer worker may tell more than this frontend counts
            }
        });
        report.microbatches().forEach(microbatchRecords::observe);
        forwardPasses.inc(report.microbatches().size());
    }
}
