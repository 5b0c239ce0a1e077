package byoc.endpoints;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Where the time of one answered call went. Times are System.nanoTime, which on Linux is the CLOCK_MONOTONIC that the
 * worker's own times ({@code x-byoc-stages}) are of; those that cannot be true of the call are left out.
 *
 * @param spans stage to its beginning and end, in the order in which they come
 * @param facts what the worker tells beside them: wait and run (µs), tokens, passes, who shared them
 */
record StageTimes(Map<String, long[]> spans, Map<String, String> facts) {
    static final String QUEUE = "queue";
    static final String WRITE = "write";

    static StageTimes of(Exchange exchange, long finished) {
        Map<String, long[]> spans = new LinkedHashMap<>();
        Map<String, String> facts = new LinkedHashMap<>();
        if (inQueue(exchange) >= 0) {
            spans.put(QUEUE, new long[] {exchange.waited().queued(), exchange.waited().taken()});
        }
        String told = exchange.outcome().stages();
        for (String part : told == null ? new String[0] : told.split(";")) {
            String[] pair = part.split("=", 2);
            if (pair.length == 2) {
                read(pair[0], pair[1], spans, facts);
            }
        }
        spans.values().removeIf(span ->
                span[0] < exchange.arrived() - 1_000 || span[1] > finished + 1_000 || span[1] < span[0]);
        if (exchange.answered() > 0) {
            spans.put(WRITE, new long[] {exchange.answered(), finished});
        }
        return new StageTimes(spans, facts);
    }

    /** How long the call waited for a worker, or -1 when none took it. */
    static long inQueue(Exchange exchange) {
        Exchange.Waited waited = exchange.waited();
        return waited.taken() == 0 ? -1 : Math.max(0, waited.taken() - waited.queued());
    }

    private static void read(String name, String value, Map<String, long[]> spans, Map<String, String> facts) {
        String[] ends = value.split("-", 2);
        if (ends.length == 1) {
            facts.put(name, value);
            return;
        }
        double began = BatchReport.number(ends[0]);
        double ended = BatchReport.number(ends[1]);
        if (began >= 0 && ended >= 0) {
            spans.put(name, new long[] {Math.round(began * 1e3), Math.round(ended * 1e3)});
        }
    }

    /** The stages in ms, {@code other_ms} for what is none of them, and who shared the forward passes. */
    void writeTo(LineFields fields, long total) {
        long known = 0;
        for (Map.Entry<String, long[]> span : spans.entrySet()) {
            long nanoseconds = span.getValue()[1] - span.getValue()[0];
            known += nanoseconds;
            if (!QUEUE.equals(span.getKey())) { // which is in every line
                fields.milliseconds(span.getKey() + "_ms", nanoseconds);
            }
        }
        fields.milliseconds("other_ms", Math.max(0, total - known));
        facts.forEach((name, value) -> {
            long number = (long) BatchReport.number(value);
            if ("wait".equals(name) || "run".equals(name)) {
                fields.milliseconds("forward_" + name + "_ms", number * 1_000);
            } else if (!"pass_ids".equals(name)) {
                fields.number(name, number);
            }
        });
    }
}
