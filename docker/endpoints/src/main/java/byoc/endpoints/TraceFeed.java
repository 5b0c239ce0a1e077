package byoc.endpoints;

import com.google.gson.JsonObject;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hands every finished call to the trace exporter, a Python program of its own (entrypoint/traces.py), one JSON object a
 * line on its standard input. A call never waits for it: what it does not take in time is dropped and counted, and the
 * count goes along with the next call. Without a command it does nothing.
 */
final class TraceFeed implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.traces");
    private static final int QUEUED_CALLS = 2048;
    private static final int RESTART_SECONDS = 30;
    private static final int FLUSH_SECONDS = 2;
    private static final int POLL_MILLISECONDS = 200;

    private final List<String> command;
    private final BlockingQueue<JsonObject> calls = new ArrayBlockingQueue<>(QUEUED_CALLS);
    private final AtomicLong dropped = new AtomicLong();

    /** What System.nanoTime lies behind the time since the epoch. */
    private final long epoch = System.currentTimeMillis() * 1_000_000 - System.nanoTime();

    private final CountDownLatch ending = new CountDownLatch(1);
    private Thread thread;

    TraceFeed(List<String> command) {
        this.command = command;
    }

    /** Starts the exporter, if there is one to be started. */
    void start() {
        if (!command.isEmpty()) {
            thread = new Thread(this, "byoc-traces");
            thread.setDaemon(true);
            thread.start();
        }
    }

    void call(Exchange exchange, int status, long finished) {
        if (!command.isEmpty() && !calls.offer(describe(exchange, status, finished))) {
            dropped.incrementAndGet();
        }
    }

    private JsonObject describe(Exchange exchange, int status, long finished) {
        StageTimes times = StageTimes.of(exchange, finished);
        JsonObject stages = new JsonObject();
        times.spans().forEach((name, span) -> stages.addProperty(name, (span[0] + epoch) + "-" + (span[1] + epoch)));
        JsonObject facts = new JsonObject();
        times.facts().forEach(facts::addProperty);
        JsonObject call = new JsonObject();
        call.addProperty("method", exchange.method().name());
        call.addProperty("path", exchange.path());
        call.addProperty("status", status);
        call.addProperty("began", exchange.arrived() + epoch);
        call.addProperty("ended", finished + epoch);
        call.addProperty("id", exchange.id());
        call.addProperty("inference_id", exchange.named().inferenceId());
        call.addProperty("traceparent", exchange.named().traceParent());
        call.addProperty("tracestate", exchange.named().traceState());
        call.addProperty("amzn_trace_id", exchange.named().amznTraceId());
        call.addProperty("records", exchange.outcome().records());
        call.addProperty("bad_records", exchange.outcome().badRecords());
        call.addProperty("bytes_in", exchange.bytesIn());
        call.addProperty("bytes_out", exchange.bytesOut());
        call.addProperty("error", exchange.failure().type());
        call.add("stages", stages);
        call.add("facts", facts);
        return call;
    }

    @Override
    public void run() {
        try {
            do {
                feed();
            } while (!ending.await(RESTART_SECONDS, TimeUnit.SECONDS));
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** Feeds one exporter to its end, which is that of its input or its own. */
    private void feed() throws InterruptedException {
        Process exporter = null;
        try {
            exporter = new ProcessBuilder(command)
                    .redirectOutput(ProcessBuilder.Redirect.INHERIT)
                    .redirectError(ProcessBuilder.Redirect.INHERIT)
                    .start();
            try (Writer input = new BufferedWriter(
                    new OutputStreamWriter(exporter.getOutputStream(), StandardCharsets.UTF_8))) {
                feed(input);
            }
            exporter.waitFor(FLUSH_SECONDS, TimeUnit.SECONDS);
        } catch (IOException gone) {
            LOG.warn("The trace exporter ended ({}): it is started again in {} s, and calls until then have no trace",
                    gone.getMessage(), RESTART_SECONDS);
        } finally {
            if (exporter != null) {
                exporter.destroyForcibly();
            }
        }
    }

    private void feed(Writer input) throws IOException, InterruptedException {
        while (true) {
            boolean last = ending.getCount() == 0;
            JsonObject call = calls.poll(last ? 0 : POLL_MILLISECONDS, TimeUnit.MILLISECONDS);
            if (call == null && last) {
                return;
            }
            if (call != null) {
                long lost = dropped.getAndSet(0);
                if (lost > 0) {
                    call.addProperty("dropped", lost);
                }
                input.write(call.toString());
                input.write('\n');
            }
            if (calls.isEmpty()) {
                input.flush();
            }
        }
    }

    /** Lets the exporter send what it has, for at most two seconds. */
    void end() throws InterruptedException {
        ending.countDown();
        if (thread != null) {
            thread.join(TimeUnit.SECONDS.toMillis(FLUSH_SECONDS));
        }
    }
}
