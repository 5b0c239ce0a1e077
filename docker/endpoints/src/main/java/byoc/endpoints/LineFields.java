package byoc.endpoints;

/**
 * Where the fields of a log line are written, in the form of the log: {@code name=value} pairs, or members of a JSON
 * object. Values that callers sent go in as ASCII on one line, cut to a length, whatever they hold.
 */
final class LineFields {
    /** Longer than any identifier of a tracing system, shorter than what fills a log. */
    private static final int CALLERS_LIMIT = 256;

    private static final String HEX = "0123456789abcdef";

    private final StringBuilder line;
    private final boolean json;

    LineFields(StringBuilder line, boolean json) {
        this.line = line;
        this.json = json;
    }

    boolean areJson() {
        return json;
    }

    /** What a caller sent, safe to stand anywhere in a line. */
    static String ascii(String value) {
        String kept = cut(value);
        if (isPlain(kept)) {
            return kept;
        }
        StringBuilder safe = new StringBuilder();
        escape(safe, kept, 0x7e, false);
        return safe.toString();
    }

    private static String cut(String value) {
        return value.length() > CALLERS_LIMIT ? value.substring(0, CALLERS_LIMIT) + "..." : value;
    }

    /** What a caller sent; left out when it is null. */
    LineFields callers(String name, String value) {
        if (value == null) {
            return this;
        }
        begin(name);
        String kept = cut(value);
        boolean quoted = json || !isPlain(kept);
        if (quoted) {
            line.append('"');
        }
        escape(line, kept, 0x7e, false);
        if (quoted) {
            line.append('"');
        }
        return this;
    }

    /** A text of our own; left out when it is null. */
    LineFields text(String name, String value) {
        if (value == null) {
            return this;
        }
        begin(name);
        line.append('"');
        escape(line, value, Character.MAX_VALUE, false);
        line.append('"');
        return this;
    }

    /** A word of our own that needs no quotes in text; left out when it is null. */
    LineFields word(String name, String value) {
        return json ? text(name, value) : raw(name, value);
    }

    private LineFields raw(String name, String value) {
        if (value != null) {
            begin(name);
            line.append(value);
        }
        return this;
    }

    LineFields number(String name, long value) {
        begin(name);
        line.append(value);
        return this;
    }

    /** Nanoseconds as milliseconds with one decimal, below ten with two; left out when negative. */
    LineFields milliseconds(String name, long nanoseconds) {
        if (nanoseconds < 0) {
            return this;
        }
        begin(name);
        appendMilliseconds(nanoseconds);
        return this;
    }

    private void appendMilliseconds(long nanoseconds) {
        boolean fine = nanoseconds < 10_000_000;
        long unit = fine ? 10_000 : 100_000;
        long perMillisecond = 1_000_000 / unit;
        long units = (nanoseconds + unit / 2) / unit;
        line.append(units / perMillisecond).append('.');
        if (fine && units % perMillisecond < 10) {
            line.append('0');
        }
        line.append(units % perMillisecond);
    }

    private void begin(String name) {
        if (json) {
            line.append(",\"").append(name).append("\":");
        } else {
            line.append(' ').append(name).append('=');
        }
    }

    private static boolean isPlain(String text) {
        for (int index = 0; index < text.length(); index++) {
            char character = text.charAt(index);
            if (character <= ' ' || character > 0x7e || character == '"' || character == '\\') {
                return false;
            }
        }
        return !text.isEmpty();
    }

    /**
     * Appends a text as the inside of a JSON string: on one line, without control characters, and without a lone half of
     * a character, which no encoding has. What lies above {@code last} is escaped too.
     *
     * @param newlines whether line breaks may stand as they are, which no JSON string can have
     */
    static void escape(StringBuilder line, CharSequence text, int last, boolean newlines) {
        int length = text.length();
        for (int index = 0; index < length; index++) {
            char character = text.charAt(index);
            if (character >= ' ' && character < 0x7f && character != '"' && character != '\\') {
                line.append(character);
            } else if (newlines && (character == '"' || character == '\\' || character == '\t')) {
                line.append(character);
            } else if (character == '"' || character == '\\') {
                line.append('\\').append(character);
            } else if (character == '\n') {
                line.append(newlines ? "\n  " : "\\n");
            } else if (character == '\t') {
                line.append("\\t");
            } else if (character == '\r') {
                line.append("\\r");
            } else if (isSafe(text, index) && character <= last) {
                line.append(character);
            } else {
                line.append("\\u");
                for (int shift = 12; shift >= 0; shift -= 4) {
                    line.append(HEX.charAt(character >> shift & 0xf));
                }
            }
        }
    }

    /** Neither a control character nor a line separator, and where it is half of a character, beside its other half. */
    private static boolean isSafe(CharSequence text, int index) {
        char character = text.charAt(index);
        if (character < 0xa0 || character == 0x2028 || character == 0x2029) {
            return false;
        }
        if (Character.isHighSurrogate(character)) {
            return index + 1 < text.length() && Character.isLowSurrogate(text.charAt(index + 1));
        }
        return !Character.isLowSurrogate(character) || index > 0 && Character.isHighSurrogate(text.charAt(index - 1));
    }
}
