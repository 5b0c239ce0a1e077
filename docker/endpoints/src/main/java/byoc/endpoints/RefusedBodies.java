package byoc.endpoints;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeSet;

/**
 * The bodies that end a worker whenever they are run, by their SHA-256, with the records at fault. They are forgotten
 * when the container ends, and the one unseen for longest when there are too many. While there is none, looking costs
 * nothing; and only a body as long as one of them is hashed.
 */
final class RefusedBodies {
    private static final int MOST = 10_000;

    /** Records are sorted, and none where none could be named. */
    private record Body(int length, TreeSet<Integer> records) {}

    private final Map<String, Body> bodies = new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Body> eldest) {
            if (size() > MOST) {
                lengths.computeIfPresent(eldest.getValue().length(), (length, count) -> count == 1 ? null : count - 1);
                return true;
            }
            return false;
        }
    };

    private final Map<Integer, Integer> lengths = new HashMap<>();
    private volatile boolean any;

    /** What a body is known by: what it holds and how it is to be read, for one model. */
    static String hash(String model, Map<String, String> headers, byte[] body) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            digest.update(model.getBytes(StandardCharsets.UTF_8));
            for (String name : new String[] {"content-type", "content-encoding"}) {
                digest.update((byte) 0);
                headers.forEach((key, value) -> {
                    if (key.equalsIgnoreCase(name)) {
                        digest.update(value.getBytes(StandardCharsets.UTF_8));
                    }
                });
            }
            digest.update((byte) 0);
            return HexFormat.of().formatHex(digest.digest(body));
        } catch (NoSuchAlgorithmException impossible) { // every Java platform has it
            throw new IllegalStateException(impossible);
        }
    }

    /** Refuses a body from now on; {@code record} counts from 1, and 0 stands for the whole. */
    synchronized void add(String hash, int length, int record) {
        Body known = bodies.get(hash);
        if (known == null) {
            known = new Body(length, new TreeSet<>());
            bodies.put(hash, known);
            lengths.merge(length, 1, Integer::sum);
        }
        if (record > 0) {
            known.records().add(record);
        }
        any = true;
    }

    /** Whether a body of this length may be one of them. */
    boolean mayHold(int length) {
        return any && holdsLength(length);
    }

    private synchronized boolean holdsLength(int length) {
        return lengths.containsKey(length);
    }

    /** The records at fault in a body that is refused, none where it is refused as a whole; null for any other body. */
    synchronized TreeSet<Integer> find(String hash) {
        Body known = bodies.get(hash);
        return known == null ? null : new TreeSet<>(known.records());
    }
}
