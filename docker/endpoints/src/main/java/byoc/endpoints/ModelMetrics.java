package byoc.endpoints;

import io.prometheus.client.Counter;
import io.prometheus.client.Histogram;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What happens to one model, counted. Its series are looked up once, when the model comes: a call costs no search for a
 * label. Safe from every thread, also after the model has gone.
 */
final class ModelMetrics {
    private static final int GOOD = 200;
    private static final int[] EXPECTED_STATUSES = {GOOD, 400, 413, 415, 500, 503, 504};

    private final String model;
    private final Counter requests;
    private final Map<Integer, Counter.Child> requestsByStatus = new ConcurrentHashMap<>();
    private final Counter.Child goodRequests;
    private final Counter.Child goodRecords;
    private final Counter.Child badRecords;
    private final Counter.Child tokens;
    private final Counter.Child padding;
    private final Counter.Child truncated;
    private final Counter.Child forwardPasses;
    private final Counter.Child workerStarts;
    private final AtomicInteger inFlight = new AtomicInteger();
    private final Histogram.Child batchRequests;
    private final Histogram.Child microbatchRecords;
    private final Histogram.Child requestSeconds;
    private final Histogram.Child queueSeconds;
    private final Histogram.Child handlerSeconds;
    private final Histogram.Child forwardSeconds;

    private volatile long firstArrival;
    private final AtomicLong lastAnswer = new AtomicLong();

    ModelMetrics(String model, Metrics all) {
        this.model = model;
        requests = all.requests;
        for (int status : EXPECTED_STATUSES) {
            ofStatus(status);
        }
        goodRequests = ofStatus(GOOD);
        goodRecords = all.records.labels(model, "ok");
        badRecords = all.records.labels(model, "error");
        tokens = all.tokens.labels(model);
        padding = all.padding.labels(model);
        truncated = all.truncated.labels(model);
        forwardPasses = all.forwardPasses.labels(model);
        workerStarts = all.workerStarts.labels(model);
        all.queue.setChild(Metrics.level(() -> all.waiting(model)), model);
        all.inFlight.setChild(Metrics.level(inFlight::get), model);
        batchRequests = all.batchRequests.labels(model);
        microbatchRecords = all.microbatchRecords.labels(model);
        requestSeconds = all.requestSeconds.labels(model);
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
        all.workerStarts.remove(model);
        all.queue.remove(model);
        all.inFlight.remove(model);
        all.batchRequests.remove(model);
        all.microbatchRecords.remove(model);
        all.requestSeconds.remove(model);
        all.queueSeconds.remove(model);
        all.handlerSeconds.remove(model);
        all.forwardSeconds.remove(model);
    }

    String name() {
        return model;
    }

    void workerStarted() {
        workerStarts.inc();
    }

    /** A call is complete and waits for its answer, until {@link #left}. */
    void entered() {
        inFlight.incrementAndGet();
    }

    void left() {
        inFlight.decrementAndGet();
    }

    /** A call that arrived then is answered now, both in nanoseconds of {@link System#nanoTime}. */
    void answered(int status, long arrived, long now) {
        requestSeconds.observe((now - arrived) / 1e9);
        (status == GOOD ? goodRequests : ofStatus(status)).inc();
        if (status == GOOD) {
            span(arrived, now);
        }
    }

    void queued(double seconds) {
        queueSeconds.observe(Math.max(0, seconds));
    }

    /**
     * All numbers at one moment, or what became of them since an earlier one, by their names in CloudWatch.
     *
     * @param sums what only grows
     * @param levels what is so now
     * @param times in seconds
     * @param sizes whole numbers
     */
    record Reading(
            Map<String, Double> sums,
            Map<String, Double> levels,
            Map<String, Distribution> times,
            Map<String, Distribution> sizes) {

        Reading since(Reading earlier) {
            Map<String, Double> grown = new LinkedHashMap<>(sums);
            grown.replaceAll((name, sum) -> sum - earlier.sums.get(name));
            return new Reading(grown, levels, since(times, earlier.times), since(sizes, earlier.sizes));
        }

        private static Map<String, Distribution> since(
                Map<String, Distribution> now, Map<String, Distribution> earlier) {
            Map<String, Distribution> grown = new LinkedHashMap<>(now);
            grown.replaceAll((name, distribution) -> distribution.since(earlier.get(name)));
            return grown;
        }

        /** Sums and levels. */
        Map<String, Double> amounts() {
            Map<String, Double> amounts = new LinkedHashMap<>(sums);
            amounts.putAll(levels);
            return amounts;
        }

        /** Whether there is anything to tell. */
        boolean isEventful() {
            return amounts().values().stream().anyMatch(amount -> amount != 0);
        }
    }

    /** All numbers now; {@code waiting} requests wait for a worker. */
    Reading read(int waiting) {
        double[] statuses = new double[6];
        requestsByStatus.forEach((status, counter) -> statuses[Math.min(status / 100, 5)] += counter.get());
        Map<String, Double> sums = new LinkedHashMap<>();
        sums.put("Requests", Arrays.stream(statuses).sum());
        sums.put("ClientErrors", statuses[4]);
        sums.put("ServerErrors", statuses[5]);
        sums.put("Records", goodRecords.get() + badRecords.get());
        sums.put("FailedRecords", badRecords.get());
        sums.put("TruncatedRecords", truncated.get());
        sums.put("Tokens", tokens.get());
        sums.put("PaddingTokens", padding.get());
        sums.put("ForwardPasses", forwardPasses.get());
        sums.put("WorkerStarts", workerStarts.get());
        Map<String, Double> levels = new LinkedHashMap<>();
        levels.put("InflightRequests", (double) inFlight.get());
        levels.put("QueuedRequests", (double) waiting);
        Map<String, Distribution> times = new LinkedHashMap<>();
        times.put("RequestTime", Distribution.of(requestSeconds, Metrics.SECONDS));
        times.put("QueueTime", Distribution.of(queueSeconds, Metrics.SECONDS));
        times.put("HandlerTime", Distribution.of(handlerSeconds, Metrics.SECONDS));
        times.put("ForwardTime", Distribution.of(forwardSeconds, Metrics.SECONDS));
        Map<String, Distribution> sizes = new LinkedHashMap<>();
        sizes.put("BatchRequests", Distribution.of(batchRequests, Metrics.BATCH_SIZES));
        sizes.put("MicrobatchRecords", Distribution.of(microbatchRecords, Metrics.MICROBATCH_SIZES));
        return new Reading(sums, levels, times, sizes);
    }

    /**
     * Sums since the start.
     *
     * @param records answered, the failed ones among them
     * @param failed records with an error for an answer
     * @param truncated records cut to the length of the model
     * @param tokens that carried text
     * @param seconds from the arrival of the first call that got a good answer to the last such answer
     */
    record Totals(double records, double failed, double truncated, double tokens, double seconds) {}

    Totals totals() {
        double failed = badRecords.get();
        return new Totals(goodRecords.get() + failed, failed, truncated.get(), tokens.get(), seconds());
    }

    private double seconds() {
        return firstArrival == 0 ? 0 : (lastAnswer.get() - firstArrival) / 1e9;
    }

    private void span(long arrived, long now) {
        if (isFirst(arrived)) {
            synchronized (this) { // once or twice in a model's life
                firstArrival = isFirst(arrived) ? arrived : firstArrival;
            }
        }
        lastAnswer.lazySet(now);
    }

    private boolean isFirst(long arrived) {
        return firstArrival == 0 || arrived < firstArrival;
    }

    void records(double good, double bad) {
        goodRecords.inc(good);
        if (bad > 0) {
            badRecords.inc(bad);
        }
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
