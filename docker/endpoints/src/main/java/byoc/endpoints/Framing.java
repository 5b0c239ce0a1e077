package byoc.endpoints;

import io.netty.buffer.ByteBuf;
import io.netty.handler.codec.http.HttpResponseStatus;

/**
 * Where the requests of one connection begin and end, by the letter of RFC 9112. Netty 4.1.53 reads more than is
 * written: it drops every carriage return, takes a line feed alone for the end of a line, {@code +5} and {@code 5 x}
 * for the size of a chunk, and whatever stands between a chunk and its line end for nothing. A proxy that reads
 * otherwise ends the request elsewhere. So every byte of a head, of a chunk's size and of a trailer is looked at here
 * first, once; bodies are only counted.
 */
final class Framing {
    private static final int MAX_FIELDS = 256;

    /**
     * Bytes of a body's chunk sizes that say nothing: extensions, blanks, zeros before a size (section 7.1.1 asks for a
     * bound). They count as no part of the body, and yet Netty holds them with the data that they stand between.
     */
    private static final int MAX_PADDING = 64 * 1024;
    private static final String VERSION = "HTTP/d.d";
    private static final boolean[] TOKEN = new boolean[128];

    static {
        for (char c = '0'; c <= 'z'; c++) {
            TOKEN[c] = Character.isLetterOrDigit(c);
        }
        for (char c : "!#$%&'*+-.^_`|~".toCharArray()) {
            TOKEN[c] = true;
        }
    }

    private enum Place {
        START, EMPTY_LINE, METHOD, TARGET, PROTOCOL, LINE_END, LINE, NAME, VALUE, LAST_LINE_END, HEAD_READ, BODY,
        CHUNK_SIZE, CHUNK_BLANK, CHUNK_EXTENSION, CHUNK_SIZE_END, CHUNK, CHUNK_END, CHUNK_LINE_END
    }

    private Place place = Place.START;
    private boolean trailers;
    private int matched;
    private int fields;
    private int padding;
    private long remaining;
    private long requests;
    private Unreadable fault;

    /**
     * Looks at the bytes from one index up to another, and returns the index up to which they may be decoded: less
     * where something is wrong with the next one, and behind a head until {@link #bodyIs} or {@link #chunksFollow}
     * tells how it goes on.
     */
    int approve(ByteBuf bytes, int from, int to) {
        int index = from;
        while (index < to && fault == null && place != Place.HEAD_READ) {
            if (place == Place.BODY || place == Place.CHUNK) {
                int taken = (int) Math.min(to - index, remaining);
                remaining -= taken;
                index += taken;
                if (remaining == 0) {
                    place = place == Place.BODY ? Place.START : Place.CHUNK_END;
                }
            } else {
                take(bytes.getByte(index));
                index += fault == null ? 1 : 0;
            }
        }
        return index;
    }

    /** What is wrong with the next byte, or null. */
    Unreadable fault() {
        return fault;
    }

    /** How many requests have begun. */
    long requests() {
        return requests;
    }

    /** Whether a request has begun that has not ended. */
    boolean isAmidRequest() {
        return place != Place.START && place != Place.EMPTY_LINE;
    }

    /** Whether the faulty or missing bytes are those of a head, so that no request is known yet. */
    boolean isAmidHead() {
        return !trailers && place.compareTo(Place.HEAD_READ) < 0;
    }

    /** Behind a head: so many bytes, then the next request. */
    void bodyIs(long length) {
        remaining = length;
        place = length > 0 ? Place.BODY : Place.START;
    }

    /** Behind a head: chunks, then the next request. */
    void chunksFollow() {
        padding = 0;
        nextChunk();
    }

    private void take(byte next) {
        switch (place) {
            case START -> startsRequest(next);
            case METHOD -> requestLine(isToken(next), next == ' ', Place.TARGET);
            case TARGET -> requestLine(next > ' ' && next < 0x7f, next == ' ' && matched > 0, Place.PROTOCOL);
            case PROTOCOL -> protocol(next);
            case LINE -> startsLine(next);
            case NAME -> name(next);
            case VALUE -> value(next);
            case CHUNK_SIZE -> chunkSize(next);
            case CHUNK_BLANK -> chunkBlank(next);
            case CHUNK_EXTENSION -> chunkExtension(next);
            default -> lineEnd(next);
        }
    }

    /** Empty lines before a request are nothing (section 2.2). */
    private void startsRequest(byte next) {
        if (next == '\r') {
            place = Place.EMPTY_LINE;
        } else if (isToken(next)) {
            place = Place.METHOD;
            fields = 0;
            requests++;
        } else {
            refuse("This is no HTTP request: it does not begin with a method.");
        }
    }

    private void requestLine(boolean belongs, boolean ends, Place following) {
        if (ends) {
            place = following;
            matched = 0;
        } else if (belongs) {
            matched++;
        } else {
            refuse("The request line must be a method, a target and HTTP/1.1, with one blank between them, and CR LF.");
        }
    }

    private void protocol(byte next) {
        if (matched == VERSION.length() && next == '\r') {
            place = Place.LINE_END;
        } else if (matched < VERSION.length() && fits(VERSION.charAt(matched), next)) {
            matched++;
        } else {
            refuse("The request line must end with HTTP/1.1 and CR LF.");
        }
    }

    private static boolean fits(char expected, byte next) {
        return expected == 'd' ? next >= '0' && next <= '9' : next == expected;
    }

    private void startsLine(byte next) {
        if (next == '\r') {
            place = Place.LAST_LINE_END;
        } else if (isToken(next)) {
            place = Place.NAME;
            if (++fields > MAX_FIELDS) {
                refuse(HttpResponseStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "There are more than " + MAX_FIELDS + " headers.");
            }
        } else if (next == ' ' || next == '\t') {
            refuse("A header begins with a blank: a header on several lines is not taken (RFC 9112, section 5.2).");
        } else {
            refuse("A header's name holds a character that no name has, or a line does not end with CR LF.");
        }
    }

    private void name(byte next) {
        if (next == ':') {
            place = Place.VALUE;
        } else if (!isToken(next)) {
            refuse("A header's name holds a character that no name has, or blanks before its colon.");
        }
    }

    private void value(byte next) {
        if (next == '\r') {
            place = Place.LINE_END;
        } else if (!isText(next)) {
            refuse("A header's value holds a control character, or its line does not end with CR LF.");
        }
    }

    private void chunkSize(byte next) {
        int digit = Character.digit(next, 16);
        if (digit == 0 && remaining == 0 && matched > 0) {
            pad();
        } else if (digit >= 0) {
            remaining = remaining * 16 + digit;
            matched++;
            if (remaining > Integer.MAX_VALUE) {
                refuse("The chunks of the body cannot be read: a size is over 7fffffff.");
            }
        } else if (matched > 0 && next == '\r') {
            place = Place.CHUNK_SIZE_END;
        } else if (matched > 0 && next == ';') {
            place = Place.CHUNK_EXTENSION;
        } else if (matched > 0 && (next == ' ' || next == '\t')) {
            place = Place.CHUNK_BLANK;
            pad();
        } else {
            refuse("The chunks of the body cannot be read: a size is no hexadecimal number.");
        }
    }

    private void chunkBlank(byte next) {
        if (next == ';') {
            place = Place.CHUNK_EXTENSION;
        } else if (next == ' ' || next == '\t') {
            pad();
        } else {
            refuse("The chunks of the body cannot be read: a size is no hexadecimal number.");
        }
    }

    private void chunkExtension(byte next) {
        if (next == '\r') {
            place = Place.CHUNK_SIZE_END;
        } else if (!isText(next)) {
            refuse("The chunks of the body cannot be read: an extension holds a control character.");
        } else {
            pad();
        }
    }

    private void pad() {
        if (++padding > MAX_PADDING) {
            refuse("The chunks of the body cannot be read: their extensions are over 64 KiB.");
        }
    }

    private void lineEnd(byte next) {
        char expected = place == Place.CHUNK_END ? '\r' : '\n';
        if (next != expected) {
            refuse(place == Place.CHUNK_END || place == Place.CHUNK_LINE_END
                    ? "The chunks of the body cannot be read: one is longer than its size says."
                    : "A carriage return stands where no line ends.");
            return;
        }
        switch (place) {
            case EMPTY_LINE -> place = Place.START;
            case LINE_END -> place = Place.LINE;
            case LAST_LINE_END -> {
                place = trailers ? Place.START : Place.HEAD_READ;
                trailers = false;
            }
            case CHUNK_END -> place = Place.CHUNK_LINE_END;
            case CHUNK_LINE_END -> nextChunk();
            default -> chunkBegins();
        }
    }

    private void chunkBegins() {
        trailers = remaining == 0;
        place = trailers ? Place.LINE : Place.CHUNK;
    }

    private void nextChunk() {
        place = Place.CHUNK_SIZE;
        remaining = 0;
        matched = 0;
    }

    private static boolean isToken(byte next) {
        return next >= 0 && TOKEN[next];
    }

    /** What a value may hold: blanks, visible characters and the bytes from 128 on (RFC 9110, section 5.5). */
    private static boolean isText(byte next) {
        return next >= ' ' && next != 0x7f || next < 0 || next == '\t';
    }

    private void refuse(String sentence) {
        refuse(HttpResponseStatus.BAD_REQUEST, sentence);
    }

    private void refuse(HttpResponseStatus status, String sentence) {
        fault = new Unreadable(status, sentence);
    }
}
