package byoc.endpoints;

import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * One line per call, refused ones included; the platform's probes have none. At WARN what the server failed, and what
 * was slower than the setting allows, with its stages; at INFO all others.
 */
final class AccessLog {
    /** What a caller that hung up is logged as; it is nobody's failure. */
    private static final int FIRST_SERVER_ERROR = 500;

    private static final Logger LOG = LogManager.getLogger("byoc.access");

    private final long slowNanoseconds;

    /**
     * @param slowNanoseconds time from which a call is slow, or negative when none is
     */
    AccessLog(long slowNanoseconds) {
        this.slowNanoseconds = slowNanoseconds;
    }

    void line(Exchange exchange, int status, long finished) {
        boolean slow = slowNanoseconds >= 0 && finished - exchange.arrived() >= slowNanoseconds;
        Level level = slow || status >= FIRST_SERVER_ERROR ? Level.WARN : Level.INFO;
        if (LOG.isEnabled(level)) {
            StageTimes stages = slow ? StageTimes.of(exchange, finished) : null;
            LOG.log(level, new CallLine(exchange, status, finished, stages));
        }
    }
}
