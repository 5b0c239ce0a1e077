package byoc.endpoints;

import java.util.function.Function;

/** Writes down each call: those of {@code /invocations} in flight and in the metrics, and all but probes in the log. */
final class Ledger {
    /** nginx's status for a caller that hung up before the answer; it goes on no wire. */
    static final int CALLER_LEFT = 499;

    private final InFlight inFlight;
    private final Function<Exchange, ModelMetrics> metrics;
    private final AccessLog accessLog;
    private final TraceFeed traces;
    private final Readiness readiness;

    /** {@code metrics} tells in whose numbers a call is counted. */
    Ledger(
            InFlight inFlight,
            Function<Exchange, ModelMetrics> metrics,
            AccessLog accessLog,
            TraceFeed traces,
            Readiness readiness) {
        this.inFlight = inFlight;
        this.metrics = metrics;
        this.accessLog = accessLog;
        this.traces = traces;
        this.readiness = readiness;
    }

    /**
     * Counts a complete call as in flight, unless the server is stopping: those are refused, and a client that
     * keeps trying must not keep the drain from its end.
     */
    void arrived(Exchange exchange) {
        if (!exchange.isInvocation()) {
            return;
        }
        exchange.countIn(metrics.apply(exchange));
        inFlight.enter(); // before the look at readiness, so that the drain sees either this count or no such call
        exchange.metrics().entered();
        exchange.setInFlight(true);
        if (readiness.isStopping()) {
            leave(exchange);
        }
    }

    void finished(Exchange exchange, int status) {
        if (exchange.isProbe()) {
            return;
        }
        long now = System.nanoTime();
        accessLog.line(exchange, status, now);
        traces.call(exchange, status, now);
        if (exchange.isInvocation()) {
            exchange.metrics().answered(status, exchange.arrived(), now);
            leave(exchange);
        }
    }

    private void leave(Exchange exchange) {
        if (exchange.inFlight()) {
            exchange.setInFlight(false);
            exchange.metrics().left();
            inFlight.leave();
        }
    }
}
