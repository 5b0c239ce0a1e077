package byoc.endpoints;

import java.util.Map;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.stream.Collectors;

/**
 * Which try of a call this is, and what the tries before it taught.
 *
 * @param deaths workers that ended while they owed its answer
 * @param began when the call came, and {@code firstTaken} when a worker first took it (System.nanoTime), 0 if none did
 * @param alone whether it is run in no other call's company, because it may have ended the last worker
 * @param refused its records that are known to end a worker; they are not run any more
 */
record Attempt(int deaths, long began, long firstTaken, boolean alone, SortedSet<Integer> refused) {
    static final Attempt FIRST = new Attempt(0, 0, 0, false, new TreeSet<>());

    /** Tells the worker to run the call's records one by one. */
    private static final String ALONE = "x-byoc-alone";

    /** Tells the worker which records it must not run. */
    private static final String REFUSED = "x-byoc-refused";

    boolean isFirst() {
        return deaths == 0;
    }

    /** What the worker is to know of it, among the headers of the request. */
    void tell(Map<String, String> headers) {
        if (alone) {
            headers.put(ALONE, "true");
        }
        tellRefused(refused, headers);
    }

    static void tellRefused(SortedSet<Integer> records, Map<String, String> headers) {
        if (!records.isEmpty()) {
            headers.put(REFUSED, records.stream().map(String::valueOf).collect(Collectors.joining(",")));
        }
    }
}
