package byoc.endpoints;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalInt;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The end of a worker, and what it was running then, from the file that it keeps beside its socket (the format is that
 * of {@code batch_handler/journal.py}). A worker that keeps none, as one with a foreign handler, may have begun
 * anything.
 *
 * @param killed whether a signal ended it, as the kernel does for want of memory
 * @param replaced whether this frontend ended it, because it did not answer in time
 * @param known whether there is a file that says what it was running
 * @param repeatable whether what was begun may be run again
 * @param running the calls that were being run, by id, each with the record that was or 0
 * @param noted whether {@code running} holds all of them
 */
record WorkerDeath(
        boolean killed,
        boolean replaced,
        boolean known,
        boolean repeatable,
        Map<String, Integer> running,
        boolean noted) {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");
    private static final String SUFFIX = ".running";
    private static final int MAGIC = 0x42594f43; // BYOC
    private static final int HEADER_BYTES = 20;
    private static final int ID_BYTES = 36;
    private static final int ENTRY_BYTES = ID_BYTES + Integer.BYTES;

    /** Reads what the worker behind this socket left; the next one at the same socket writes over it. */
    static WorkerDeath read(String socket, boolean replaced) {
        try {
            ByteBuffer file = ByteBuffer.wrap(Files.readAllBytes(Path.of(socket + SUFFIX)));
            if (file.remaining() < HEADER_BYTES || file.getInt() != MAGIC) {
                return unknown(replaced);
            }
            boolean repeatable = file.getInt() == 1;
            int slots = file.getInt();
            int entries = file.getInt();
            boolean noted = file.getInt() == 0;
            Map<String, Integer> running = new HashMap<>();
            for (int slot = 0; slot < slots; slot++) {
                int start = HEADER_BYTES + slot * (Integer.BYTES + entries * ENTRY_BYTES);
                int count = file.getInt(start);
                for (int entry = 0; entry < count; entry++) {
                    int place = start + Integer.BYTES + entry * ENTRY_BYTES;
                    String id = new String(file.array(), place, ID_BYTES, StandardCharsets.US_ASCII);
                    running.put(id, file.getInt(place + ID_BYTES));
                }
            }
            return new WorkerDeath(false, replaced, true, repeatable, running, noted);
        } catch (IOException | IndexOutOfBoundsException none) {
            return unknown(replaced);
        }
    }

    /** Removes what the worker behind this socket left: no other will listen there. */
    static void forget(String socket) {
        try {
            Files.deleteIfExists(Path.of(socket + SUFFIX));
        } catch (IOException left) {
            LOG.debug("{}{} is left behind", socket, SUFFIX, left);
        }
    }

    private static WorkerDeath unknown(boolean replaced) {
        return new WorkerDeath(false, replaced, false, false, Map.of(), false);
    }

    WorkerDeath by(boolean kill) {
        return new WorkerDeath(kill, replaced, known, repeatable, running, noted);
    }

    /** The record that was being run of a call (0 where that is not known), or nothing where the call was not begun. */
    OptionalInt record(String id) {
        Integer record = running.get(id);
        if (record != null) {
            return OptionalInt.of(record);
        }
        return noted ? OptionalInt.empty() : OptionalInt.of(0);
    }
}
