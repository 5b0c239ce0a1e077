package byoc.endpoints;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.TimeZone;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.config.Node;
import org.apache.logging.log4j.core.config.plugins.Plugin;
import org.apache.logging.log4j.core.config.plugins.PluginAttribute;
import org.apache.logging.log4j.core.config.plugins.PluginFactory;
import org.apache.logging.log4j.core.layout.AbstractStringLayout;
import org.apache.logging.log4j.core.util.datetime.FixedDateFormat;
import org.apache.logging.log4j.message.Message;

/**
 * The form of every line on the container's output, in log4j's own terms: text, or one JSON object. The Python side
 * writes the same form (log_lines.py); what a worker marks as such passes as it is. Anything else that a worker printed
 * becomes the message of a line.
 */
@Plugin(name = "LineLayout", category = Node.CATEGORY, elementType = org.apache.logging.log4j.core.Layout.ELEMENT_TYPE)
public final class LineLayout extends AbstractStringLayout {
    /** The logger that TorchServe hands its workers' output to. */
    private static final String WORKERS = "MODEL_LOG";

    /** The environment variable with what a worker puts before a line that has its form already. */
    private static final String MARK = "_BYOC_LOG_MARK";

    private static final char SIGN = '\u001e';
    private static final char NEWLINE = '\u001f';

    /** As log_lines.py. */
    private static final int MESSAGE_LIMIT = 64 * 1024;

    private final FixedDateFormat time = FixedDateFormat.create(
            FixedDateFormat.FixedFormat.ISO8601_PERIOD, TimeZone.getTimeZone("UTC"));
    private final boolean json;
    private final boolean stacks;
    private final String mark;

    /** A message that has fields beside its text. */
    interface Fielded extends Message {
        void writeTo(LineFields fields);
    }

    private LineLayout(boolean json, boolean stacks, String mark) {
        super(StandardCharsets.UTF_8);
        this.json = json;
        this.stacks = stacks;
        this.mark = mark == null || mark.isEmpty() ? null : SIGN + mark;
    }

    /**
     * Called by log4j for each such element of its configuration.
     *
     * @param format {@code json} or {@code text}
     * @param stacks whether exceptions are shown with their stack, or as their one sentence
     */
    @PluginFactory
    public static LineLayout create(
            @PluginAttribute("format") String format,
            @PluginAttribute(value = "stacks", defaultBoolean = true) boolean stacks) {
        return new LineLayout("json".equals(format), stacks, System.getenv(MARK));
    }

    @Override
    public String toSerializable(LogEvent event) {
        StringBuilder line = getStringBuilder();
        String message = event.getMessage().getFormattedMessage();
        if (mark != null && message.startsWith(mark) && WORKERS.equals(event.getLoggerName())) {
            for (int index = mark.length(); index < message.length(); index++) {
                char character = message.charAt(index);
                line.append(character == NEWLINE ? '\n' : character);
            }
            return line.append('\n').toString();
        }
        if (message.length() > MESSAGE_LIMIT) {
            message = message.substring(0, MESSAGE_LIMIT) + "… (" + (message.length() - MESSAGE_LIMIT) + " more characters)";
        }
        if (json) {
            writeJson(line, event, message);
        } else {
            writeText(line, event, message);
        }
        return line.append('\n').toString();
    }

    private void writeJson(StringBuilder line, LogEvent event, String message) {
        line.append("{\"time\":\"");
        writeTime(line, event);
        line.append("\",\"level\":\"").append(event.getLevel()).append("\",\"logger\":\"");
        LineFields.escape(line, logger(event), Character.MAX_VALUE, false);
        line.append("\",\"message\":\"");
        LineFields.escape(line, message, Character.MAX_VALUE, false);
        if (event.getThrown() != null) {
            LineFields.escape(line, (stacks ? "\n" : ": ") + told(event.getThrown()), Character.MAX_VALUE, false);
        }
        line.append('"');
        if (event.getMessage() instanceof Fielded fielded) {
            fielded.writeTo(new LineFields(line, true));
        }
        line.append('}');
    }

    private void writeText(StringBuilder line, LogEvent event, String message) {
        writeTime(line, event);
        line.append(' ').append(event.getLevel()).append(' ');
        LineFields.escape(line, message.stripTrailing(), Character.MAX_VALUE, true);
        if (event.getMessage() instanceof Fielded fielded) {
            fielded.writeTo(new LineFields(line, false));
        }
        if (event.getThrown() != null) {
            LineFields.escape(line, (stacks ? "\n" : ": ") + told(event.getThrown()), Character.MAX_VALUE, true);
        }
    }

    private void writeTime(StringBuilder line, LogEvent event) {
        line.append(time.formatInstant(event.getInstant())).append('Z');
    }

    private static String logger(LogEvent event) {
        return WORKERS.equals(event.getLoggerName()) ? "worker" : event.getLoggerName();
    }

    private String told(Throwable thrown) {
        if (!stacks) {
            return String.valueOf(thrown.getMessage());
        }
        StringWriter trace = new StringWriter();
        thrown.printStackTrace(new PrintWriter(trace));
        return trace.toString().stripTrailing();
    }
}
