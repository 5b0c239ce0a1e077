package byoc.endpoints;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.pytorch.serve.util.ConfigManager;

/**
 * Every setting of the frontend, read once. What TorchServe reads for itself (addresses, queue, batch, limits of
 * size) stays in its configuration; these are the facts it has no name for.
 *
 * @param model the start-up model that {@code /invocations} calls
 * @param maxRequestBytes largest request body
 * @param queueSize places in TorchServe's queue, for messages: TorchServe enforces it
 * @param maxPendingBytes most bytes of bodies that wait for their answer; TorchServe copies a batch of them twice
 *     on its way to the worker, hence by default a quarter of the heap
 * @param maxPayloadMb {@code MaxPayloadInMB} of {@code /execution-parameters}
 * @param maxConcurrentTransforms {@code MaxConcurrentTransforms} of {@code /execution-parameters}
 * @param batchStrategy {@code BatchStrategy} of {@code /execution-parameters}
 * @param drainSeconds how long a stop waits for calls in flight
 * @param clientTimeoutSeconds how long a request may take to come, beside a second for every kilobyte; 0 is for ever
 * @param maxRestarts failed worker starts in a row after which the container gives up
 * @param slowNanoseconds from which time on a call's line tells its stages; negative: never
 * @param traceExporter the command of the program that exports traces; empty: nobody wants any
 * @param transformJob whether the container serves a batch transform job
 * @param emf the metrics that are printed for CloudWatch
 * @param multiModel whether models come and go by {@code /models}
 * @param evictModels whether a model that needs room gets that of the one least recently used
 * @param parallelLoads models that are loaded at once
 * @param preparer the command that prepares models, its words apart by blanks
 */
record Settings(
        String model,
        int maxRequestBytes,
        int queueSize,
        long maxPendingBytes,
        int maxPayloadMb,
        int maxConcurrentTransforms,
        String batchStrategy,
        int drainSeconds,
        int clientTimeoutSeconds,
        int maxRestarts,
        long slowNanoseconds,
        List<String> traceExporter,
        boolean transformJob,
        EmfSettings emf,
        boolean multiModel,
        boolean evictModels,
        int parallelLoads,
        String preparer) {

    static Settings read(ConfigManager torchServe) {
        return new Settings(
                System.getProperty("byoc.model", "model"),
                torchServe.getMaxRequestSize(),
                number("byoc.queue-size", torchServe.getJobQueueSize()),
                Runtime.getRuntime().maxMemory() / 4,
                number("byoc.execution.max-payload-mb", 6),
                number("byoc.execution.max-concurrent-transforms", 1),
                System.getProperty("byoc.execution.strategy", "MULTI_RECORD"),
                number("byoc.drain-seconds", 25),
                number("byoc.client-timeout", 60),
                number("byoc.max-restarts", 5),
                TimeUnit.MILLISECONDS.toNanos(number("byoc.slow-request-ms", -1)),
                words(System.getProperty("byoc.trace-exporter", "")),
                Boolean.getBoolean("byoc.transform-job"),
                EmfSettings.read(),
                Boolean.getBoolean("byoc.multi-model"),
                Boolean.getBoolean("byoc.evict-models"),
                number("byoc.parallel-loads", 1),
                System.getProperty("byoc.preparer", ""));
    }

    /** The words of a command line, one a line. */
    private static List<String> words(String lines) {
        return lines.isEmpty() ? List.of() : List.of(lines.split("\n"));
    }

    private static int number(String name, int fallback) {
        String text = System.getProperty(name);
        if (text == null || text.isBlank()) {
            return fallback;
        }
        try {
            return Integer.parseInt(text.trim());
        } catch (NumberFormatException error) {
            throw new IllegalArgumentException(name + " must be a whole number, not \"" + text + "\"", error);
        }
    }
}
