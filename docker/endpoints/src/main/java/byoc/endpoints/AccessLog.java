package byoc.endpoints;

import com.google.gson.JsonObject;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One line per call of {@code /invocations}, refused ones included, and never a byte of what was sent or answered.
 * The JSON form is a whole object with its own time: its appender prints the message and nothing around it.
 */
final class AccessLog {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.access");

    private final boolean json;

    AccessLog(boolean json) {
        this.json = json;
    }

    void line(String id, int status, long records, long nanoseconds) {
        if (!LOG.isInfoEnabled()) {
            return;
        }
        double milliseconds = Math.round(nanoseconds / 1e5) / 10.0;
        if (!json) {
            LOG.info("id={} status={} records={} ms={}", id, status, records, milliseconds);
            return;
        }
        JsonObject line = new JsonObject();
        line.addProperty("time", Instant.now().truncatedTo(ChronoUnit.MILLIS).toString());
        line.addProperty("logger", LOG.getName());
        line.addProperty("id", id);
        line.addProperty("status", status);
        line.addProperty("records", records);
        line.addProperty("ms", milliseconds);
        LOG.info("{}", line);
    }
}
