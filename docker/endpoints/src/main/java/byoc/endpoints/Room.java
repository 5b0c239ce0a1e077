package byoc.endpoints;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.function.BooleanSupplier;

/**
 * Whether there is memory for one more model, asked before it takes any: a worker that the kernel ends for want of memory
 * takes calls with it, and not always its own. Models that are being loaded have what they were promised set aside.
 */
final class Room {
    private static final long MIB = 1048576;
    private static final int RECHECK_MILLISECONDS = 1000;

    private final Preparer preparer;
    private final BooleanSupplier evictOne;
    private Need promised = new Need(0, 0);
    private int loads;

    /** Takes what unloads a model that can be spared, and says whether there was one; of a server that must not, never. */
    Room(Preparer preparer, BooleanSupplier evictOne) {
        this.preparer = preparer;
        this.evictOne = evictOne;
    }

    /**
     * Bytes of the container's memory, and of a GPU's.
     *
     * @param memory in bytes
     * @param gpu in bytes
     */
    record Need(long memory, long gpu) {
        static Need of(JsonObject needs) {
            return new Need(needs.get("memory").getAsLong(), needs.get("gpu").getAsLong());
        }

        Need plus(Need other) {
            return new Need(memory + other.memory, gpu + other.gpu);
        }

        Need minus(Need other) {
            return new Need(memory - other.memory, gpu - other.gpu);
        }
    }

    /** Sets so much aside, until {@link #giveBack}. Throws LoadRefused when there is not so much. */
    void take(Need need) throws LoadRefused, InterruptedException {
        while (!tryTake(need)) {
            if (!evictOne.getAsBoolean()) {
                throw shortage(need);
            }
        }
    }

    private synchronized boolean tryTake(Need need) throws LoadRefused, InterruptedException {
        while (!fits(need.plus(promised))) {
            if (loads == 0 || !fits(need)) {
                return false;
            }
            wait(RECHECK_MILLISECONDS); // those that load now may take less than they were promised
        }
        promised = promised.plus(need);
        loads++;
        return true;
    }

    synchronized void giveBack(Need need) {
        promised = promised.minus(need);
        loads--;
        notifyAll();
    }

    private boolean fits(Need need) throws LoadRefused, InterruptedException {
        JsonObject free = preparer.ask("memory", new JsonObject());
        return need.memory() <= bytes(free.get("memory")) && need.gpu() <= bytes(free.get("gpu"));
    }

    /** What nobody knows the bounds of is not short. */
    private static long bytes(JsonElement told) {
        return told.isJsonNull() ? Long.MAX_VALUE : told.getAsLong();
    }

    private LoadRefused shortage(Need need) throws LoadRefused, InterruptedException {
        JsonObject free = preparer.ask("memory", new JsonObject());
        boolean ofGpu = need.gpu() > bytes(free.get("gpu"));
        long needed = ofGpu ? need.gpu() : need.memory();
        long left = bytes(free.get(ofGpu ? "gpu" : "memory"));
        return new LoadRefused(ErrorType.INSUFFICIENT_MEMORY, "The model takes about " + needed / MIB + " MiB of the "
                + (ofGpu ? "GPU's" : "container's") + " memory, of which " + left / MIB
                + " MiB can be spared: unload other models first, or give the container more.");
    }
}
