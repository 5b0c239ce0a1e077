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

    /** Takes note of the worker's present state; to be called several times a second. */
    void observe(WorkerThread worker) {
        Start start = latest.computeIfAbsent(worker.getWorkerId(), id -> new Start());
        Process process = worker.getLifeCycle().getProcess();
        if (process != start.process) {
            if (start.process != null && !start.settled) {
                failedInARow++;
            }
            start.process = process;
            start.settled = false;
        }
        if (process == null || start.settled) {
            return;
        }
        if (worker.getState() == WorkerState.WORKER_MODEL_LOADED) {
            start.settled = true;
            failedInARow = 0;
        } else if (Workers.isStopped(worker) && !process.isAlive()) {
            start.settled = true;
            failedInARow++;
        }
    }

    int failedInARow() {
        return failedInARow;
    }
}
