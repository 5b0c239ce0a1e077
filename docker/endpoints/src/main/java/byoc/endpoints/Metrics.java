package byoc.endpoints;

import io.prometheus.client.CollectorRegistry;
import io.prometheus.client.Counter;
import io.prometheus.client.Gauge;
import io.prometheus.client.Histogram;
import io.prometheus.client.exporter.common.TextFormat;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.IntSupplier;

/**
 * The numbers behind {@code GET /metrics}. They live in a registry of their own, apart from TorchServe's, and every
 * one of them is there from the first scrape on, so that a rate over it is right from the first request.
 */
final class Metrics {
    private static final double[] SECONDS = {
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60
    };
    private static final String[] EXPECTED_STATUSES = {"200", "400", "413", "415", "500", "503", "504"};

    private final CollectorRegistry registry = new CollectorRegistry();
    private final Counter requests = Counter.build("byoc_requests_total", "Calls of /invocations by answered status.")
            .labelNames("status").register(registry);
    private final Counter records = Counter.build("byoc_records_total", "Records by outcome.")
            .labelNames("outcome").register(registry);
    private final Counter tokens = counter("byoc_tokens_total", "Tokens that carried text.");
    private final Counter padding = counter("byoc_padding_tokens_total", "Tokens that only filled a row up.");
    private final Counter truncated = counter("byoc_truncated_total", "Records cut to the length of the model.");
    private final Counter forwardPasses = counter("byoc_forward_passes_total", "Forward passes of the model.");
    private final Histogram batchRequests = histogram(
            "byoc_batch_requests", "Requests in one batch.", powersOfTwo(128));
    private final Histogram microbatchRecords = histogram(
            "byoc_microbatch_records", "Records in one forward pass.", powersOfTwo(1024));
    private final Histogram queueSeconds = histogram(
            "byoc_queue_seconds", "Time that a request waited for a worker.", SECONDS);
    private final Histogram handlerSeconds = histogram(
            "byoc_handler_seconds", "Time that the handler took for one batch.", SECONDS);
    private final Histogram forwardSeconds = histogram(
            "byoc_forward_seconds", "Time that one batch spent in forward passes.", SECONDS);

    private volatile long firstArrival;
    private volatile long lastAnswer;

    Metrics(IntSupplier inFlight) {
        Gauge.build("byoc_inflight_requests", "Calls of /invocations that are not answered yet.")
                .create()
                .setChild(new Gauge.Child() {
                    @Override
                    public double get() {
                        return inFlight.getAsInt();
                    }
                })
                .register(registry);
        records.labels("ok");
        records.labels("error");
        for (String status : EXPECTED_STATUSES) {
            requests.labels(status);
        }
    }

    void answered(int status) {
        requests.labels(Integer.toString(status)).inc();
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
        double failed = records.labels("error").get();
        double seconds = firstArrival == 0 ? 0 : (lastAnswer - firstArrival) / 1e9;
        return new Totals(records.labels("ok").get() + failed, failed, truncated.get(), tokens.get(), seconds);
    }

    /** A call arrived, some time ago, and is answered now. */
    void span(long arrived) {
        synchronized (this) {
            firstArrival = firstArrival == 0 ? arrived : Math.min(firstArrival, arrived);
            lastAnswer = System.nanoTime();
        }
    }

    void records(double good, double bad) {
        records.labels("ok").inc(good);
        records.labels("error").inc(bad);
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

    /** All metrics in the Prometheus text format 0.0.4, behind ours those of the GPUs from the file that the entrypoint writes. */
    String text() {
        StringWriter text = new StringWriter();
        try {
            TextFormat.write004(text, registry.metricFamilySamples());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return text + gpus();
    }

    private static String gpus() {
        String file = System.getProperty("byoc.gpu-metrics", "");
        try {
            return file.isEmpty() ? "" : Files.readString(Path.of(file));
        } catch (IOException absent) {
            return ""; // not written yet, or not any more
        }
    }

    private Counter counter(String name, String help) {
        return Counter.build(name, help).register(registry);
    }

    private Histogram histogram(String name, String help, double... buckets) {
        return Histogram.build(name, help).buckets(buckets).register(registry);
    }

    private static double[] powersOfTwo(int last) {
        double[] powers = new double[Integer.numberOfTrailingZeros(last) + 1];
        for (int exponent = 0; exponent < powers.length; exponent++) {
            powers[exponent] = 1 << exponent;
        }
        return powers;
    }
}
