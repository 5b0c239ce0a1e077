package byoc.endpoints;

/**
 * One call as a line of the access log. It never holds a byte of what was sent or answered: of headers only those that
 * name the call, and of an error its type, and its sentence only where the frontend made it.
 */
final class CallLine implements LineLayout.Fielded {
    private static final long serialVersionUID = 1L;

    private final transient Exchange exchange;
    private final transient StageTimes stages;
    private final int status;
    private final long finished;

    /** The stages may be null. */
    CallLine(Exchange exchange, int status, long finished, StageTimes stages) {
        this.exchange = exchange;
        this.status = status;
        this.finished = finished;
        this.stages = stages;
    }

    @Override
    public String getFormattedMessage() {
        StringBuilder text = new StringBuilder(LineFields.ascii(exchange.method().name()))
                .append(' ').append(LineFields.ascii(exchange.path()))
                .append(' ').append(status);
        return (stages == null ? text : text.append(" slow")).toString();
    }

    @Override
    public void writeTo(LineFields fields) {
        long total = finished - exchange.arrived();
        if (fields.areJson()) { // in text the message says these
            fields.callers("method", exchange.method().name())
                    .callers("path", exchange.path())
                    .number("status", status);
        }
        fields.word("id", exchange.id())
                .callers("inference_id", exchange.named().inferenceId())
                .callers("traceparent", exchange.named().traceParent())
                .callers("amzn_trace_id", exchange.named().amznTraceId())
                .number("records", exchange.outcome().records())
                .number("bad_records", exchange.outcome().badRecords())
                .number("bytes_in", exchange.bytesIn())
                .number("bytes_out", exchange.bytesOut())
                .milliseconds("ms", total)
                .milliseconds("queue_ms", StageTimes.inQueue(exchange))
                .callers("error", exchange.failure().type())
                .text("reason", exchange.failure().reason());
        if (stages != null) {
            stages.writeTo(fields, total);
        }
    }

    @Override
    public String getFormat() {
        return "";
    }

    @Override
    public Object[] getParameters() {
        return new Object[0];
    }

    @Override
    public Throwable getThrowable() {
        return null;
    }
}
