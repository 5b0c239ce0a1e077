package byoc.endpoints;

import java.util.HashMap;
import java.util.Map;
import org.pytorch.serve.wlm.WorkerState;
import org.pytorch.serve.wlm.WorkerThread;

/**
 * Counts the worker starts in a row that ended before the model was loaded. A start is told by its process, since a
 * worker that fails early shows no change of state at all between one start and the next.
 */
final class WorkerStarts {
    private static final class Start {
        private Process process;
        private boolean settled;
    }

    private final Map<String, Start> latest = new HashMap<>();
    private int failedInARow;

    /** Takes note of the worker's present state, and tells whether its process is a new one; several times a second. */
    boolean observe(WorkerThread worker) {
        Start start = latest.computeIfAbsent(worker.getWorkerId(), id -> new Start());
        Process process = worker.getLifeCycle().getProcess();
        boolean isNew = process != start.process;
        if (isNew) {
            if (start.process != null && !start.settled) {
                failedInARow++;
            }
            start.process = process;
            start.settled = false;
        }
        if (process == null || start.settled) {
            return isNew && process != null;
        }
        if (worker.getState() == WorkerState.WORKER_MODEL_LOADED) {
            start.settled = true;
            failedInARow = 0;
        } else if (Workers.isStopped(worker) && !process.isAlive()) {
            start.settled = true;
            failedInARow++;
        }
        return isNew;
    }

    int failedInARow() {
        return failedInARow;
    }
}
