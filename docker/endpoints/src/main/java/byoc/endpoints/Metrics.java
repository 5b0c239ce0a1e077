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
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.IntSupplier;
import java.util.function.ToIntFunction;

/**
 * The numbers behind {@code GET /metrics}, every one of them by model. They live in a registry of their own, apart
 * from TorchServe's. What happens to a model is counted in its {@link ModelMetrics}; here they come and go, and are
 * written out.
 */
final class Metrics {
    /** The label that all of them have. */
    static final String MODEL = "model";

    static final double[] SECONDS = {
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60
    };

    static final double[] BATCH_SIZES = powersOfTwo(128);
    static final double[] MICROBATCH_SIZES = powersOfTwo(1024);

    private final CollectorRegistry registry = new CollectorRegistry();
    private final Map<String, ModelMetrics> models = new ConcurrentHashMap<>();

    final Counter requests = counter("byoc_requests_total", "Calls of the model by answered status.", "status");
    final Counter records = counter("byoc_records_total", "Records by outcome.", "outcome");
    final Counter tokens = counter("byoc_tokens_total", "Tokens that carried text.");
    final Counter padding = counter("byoc_padding_tokens_total", "Tokens that only filled a row up.");
    final Counter truncated = counter("byoc_truncated_total", "Records cut to the length of the model.");
    final Counter forwardPasses = counter("byoc_forward_passes_total", "Forward passes of the model.");
    final Gauge inFlight = gauge("byoc_inflight_requests", "Calls of the model that are not answered yet.");
    final Histogram batchRequests = histogram("byoc_batch_requests", "Requests in one batch.", BATCH_SIZES);
    final Histogram microbatchRecords = histogram(
            "byoc_microbatch_records", "Records in one forward pass.", MICROBATCH_SIZES);
    final Gauge queue = gauge("byoc_queue_requests", "Requests that wait for a worker.");
    final Counter workerStarts = counter("byoc_worker_starts_total", "Worker processes started for the model.");
    final Histogram requestSeconds = histogram(
            "byoc_request_seconds", "Time from the last byte of a call to the last of its answer.", SECONDS);
    final Histogram queueSeconds = histogram(
            "byoc_queue_seconds", "Time that a request waited for a worker.", SECONDS);
    final Histogram handlerSeconds = histogram(
            "byoc_handler_seconds", "Time that the handler took for one batch.", SECONDS);
    final Histogram forwardSeconds = histogram(
            "byoc_forward_seconds", "Time that one batch spent in forward passes.", SECONDS);

    private final ToIntFunction<String> waiting;
    private volatile Consumer<ModelMetrics> beforeRemoval = model -> { };

    /**
     * Both are asked at every look at the numbers, and never otherwise.
     *
     * @param waiting how many requests wait for a worker of the model of this name
     * @param loaded how many models have a loaded worker
     */
    Metrics(ToIntFunction<String> waiting, IntSupplier loaded) {
        this.waiting = waiting;
        Gauge.build("byoc_models_loaded", "Models that can answer now.")
                .create()
                .setChild(level(loaded))
                .register(registry);
    }

    /** A gauge that is read where its number lives. */
    static Gauge.Child level(IntSupplier number) {
        return new Gauge.Child() {
            @Override
            public double get() {
                return number.getAsInt();
            }
        };
    }

    int waiting(String model) {
        return waiting.applyAsInt(model);
    }

    /** The numbers of all models. */
    Collection<ModelMetrics> models() {
        return models.values();
    }

    /** To be told of a model while its numbers are still to be had. */
    void beforeRemoval(Consumer<ModelMetrics> listener) {
        beforeRemoval = listener;
    }

    /**
     * The numbers of the model of this name. The first call makes all its series, so that a rate over each of them is
     * right from the model's first request; names that callers make up must therefore not come here.
     */
    ModelMetrics of(String model) {
        return models.computeIfAbsent(model, name -> new ModelMetrics(name, this));
    }

    /** Drops all series of a model that is served no longer; what its last calls still count is lost. */
    void remove(String model) {
        ModelMetrics gone = models.remove(model);
        if (gone != null) {
            beforeRemoval.accept(gone);
            gone.drop(this);
        }
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
        return Counter.build(name, help).labelNames(MODEL).register(registry);
    }

    private Counter counter(String name, String help, String label) {
        return Counter.build(name, help).labelNames(MODEL, label).register(registry);
    }

    private Gauge gauge(String name, String help) {
        return Gauge.build(name, help).labelNames(MODEL).register(registry);
    }

    private Histogram histogram(String name, String help, double... buckets) {
        return Histogram.build(name, help).labelNames(MODEL).buckets(buckets).register(registry);
    }

    private static double[] powersOfTwo(int last) {
        double[] powers = new double[Integer.numberOfTrailingZeros(last) + 1];
        for (int exponent = 0; exponent < powers.length; exponent++) {
            powers[exponent] = 1 << exponent;
        }
        return powers;
    }
}
