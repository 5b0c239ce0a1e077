package byoc.endpoints;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;

/**
 * A path below {@code /models}: the list, one model, or the calls of one. Names are opaque: whatever the platform calls a
 * model is only ever compared, and never becomes the name of a file, so that nothing in one can lead anywhere.
 *
 * @param name the model's, decoded; null for the list
 * @param invocation whether the path is the one that calls the model
 */
record ModelPath(String name, boolean invocation) {
    private static final String LIST = "/models";
    private static final String BELOW = LIST + "/";
    private static final String INVOKE = "/invoke";
    private static final int LONGEST_NAME = 1024;

    private static final int LONGEST_QUOTE = 80;

    /** What URLDecoder puts in the place of bytes that are no UTF-8. */
    private static final char UNREADABLE = '\uFFFD';

    static boolean isOfModels(String path) {
        return path.equals(LIST) || path.startsWith(BELOW);
    }

    static boolean isInvocation(String path) {
        return path.startsWith(BELOW) && path.endsWith(INVOKE) && path.length() > BELOW.length() + INVOKE.length() - 1
                && path.indexOf('/', BELOW.length()) == path.length() - INVOKE.length();
    }

    /** Throws IllegalArgumentException, with a sentence, for a path that names no model. */
    static ModelPath parse(String path) {
        if (path.equals(LIST)) {
            return new ModelPath(null, false);
        }
        boolean invocation = isInvocation(path);
        String name = path.substring(BELOW.length(), path.length() - (invocation ? INVOKE.length() : 0));
        if (name.indexOf('/') >= 0) {
            throw new IllegalArgumentException(
                    "Nothing is served at this path; a model has /models/{name} and /models/{name}/invoke.");
        }
        return new ModelPath(checked(decoded(name)), invocation);
    }

    private static String decoded(String segment) {
        try {
            return URLDecoder.decode(segment.replace("+", "%2B"), StandardCharsets.UTF_8); // a plus is no blank in a path
        } catch (IllegalArgumentException incomplete) {
            throw new IllegalArgumentException("The model's name is not percent-encoded: a % needs two digits.", incomplete);
        }
    }

    /** The name, if it can be one: printable, and not too long. Throws IllegalArgumentException with a sentence. */
    static String checked(String name) {
        boolean printable = name.codePoints().noneMatch(
                point -> Character.isISOControl(point) || point == UNREADABLE || Character.getType(point) == Character.SURROGATE);
        if (name.isBlank() || !printable || name.length() > LONGEST_NAME) {
            throw new IllegalArgumentException(
                    "A model's name is 1 to " + LONGEST_NAME + " printable characters in UTF-8.");
        }
        return name;
    }

    /** The name, as far as a sentence holds it. */
    static String quoted(String name) {
        return name.codePointCount(0, name.length()) > LONGEST_QUOTE
                ? name.substring(0, name.offsetByCodePoints(0, LONGEST_QUOTE)) + "\u2026"
                : name;
    }
}
