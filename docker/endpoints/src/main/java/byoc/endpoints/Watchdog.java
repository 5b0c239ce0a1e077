package byoc.endpoints;

import java.util.List;
import java.util.Optional;
import org.pytorch.serve.wlm.Model;
import org.pytorch.serve.wlm.WorkerThread;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Ends the process when waiting is in vain, so that the platform learns of it from an exit code and not from a
 * timeout: when the model cannot be loaded, or when its workers keep failing after a crash. TorchServe would try for
 * minutes, fall silent, and stay up.
 */
final class Watchdog implements Runnable {
    static final int EXIT_CANNOT_LOAD = 3;
    static final int EXIT_KEEPS_FAILING = 4;

    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");
    private static final int PERIOD_MILLISECONDS = 100;
    private static final int SWEEP_EVERY = 10;

    /** Time for the worker's last words to come through the pipe and into the log. */
    private static final int LAST_WORDS_MILLISECONDS = 500;

    private final Settings settings;
    private final Readiness readiness;
    private final PendingCalls pending;
    private final Metrics metrics;
    private final Optional<EmbeddedMetrics> embedded;
    private final Optional<JobSummary> summary;
    private final WorkerStarts starts = new WorkerStarts();
    private final long begun = System.nanoTime();
    private boolean announced;
    private boolean isReady;

    Watchdog(
            Settings settings,
            Readiness readiness,
            PendingCalls pending,
            Metrics metrics,
            Optional<EmbeddedMetrics> embedded,
            Optional<JobSummary> summary) {
        this.settings = settings;
        this.readiness = readiness;
        this.pending = pending;
        this.metrics = metrics;
        this.embedded = embedded;
        this.summary = summary;
    }

    @Override
    public void run() {
        try {
            for (long round = 0; !readiness.isStopping(); round++) {
                try {
                    look();
                    if (round % SWEEP_EVERY == 0) {
                        summary.ifPresent(JobSummary::tellWhenDue);
                        pending.sweep(Workers.anyLoaded(readiness.model(settings.model())));
                    }
                } catch (RuntimeException fault) { // TorchServe's lists of workers are not safe to read while it scales
                    LOG.warn("The watchdog missed a round", fault);
                }
                Thread.sleep(PERIOD_MILLISECONDS);
            }
        } catch (InterruptedException ignored) {
            Thread.currentThread().interrupt();
        }
    }

    private void look() throws InterruptedException {
        noteReadiness(readiness.state() == Readiness.State.READY);
        for (String name : readiness.expected()) {
            Model model = readiness.model(name);
            if (model != null) {
                judge(name, Workers.of(model), Workers.anyLoaded(model));
            } else if (!readiness.wasReady()) {
                giveUp(EXIT_CANNOT_LOAD, "Model {} cannot be loaded: TorchServe did not register it", name);
            }
        }
    }

    private void judge(String name, List<WorkerThread> workers, boolean loaded) throws InterruptedException {
        for (WorkerThread worker : workers) {
            if (starts.observe(worker)) {
                metrics.of(name).workerStarted();
            }
        }
        if (loaded) {
            return;
        }
        if (!readiness.wasReady()) {
            if (workers.stream().anyMatch(Workers::isStopped)) {
                giveUp(EXIT_CANNOT_LOAD, "Model {} cannot be loaded: its worker ended while loading it", name);
            }
        } else if (starts.failedInARow() >= settings.maxRestarts()) {
            giveUp(EXIT_KEEPS_FAILING, "Model {} is lost: {} worker starts in a row failed", name, starts.failedInARow());
        } else if (!workers.isEmpty() && workers.stream().allMatch(Watchdog::isAbandoned)) {
            giveUp(EXIT_KEEPS_FAILING, "Model {} is lost: TorchServe no longer restarts its workers", name);
        }
    }

    /** TorchServe restarts a worker only for so long after its first failure. */
    private static boolean isAbandoned(WorkerThread worker) {
        Process process = worker.getLifeCycle().getProcess();
        return Workers.isStopped(worker) && !worker.isHealthy() && (process == null || !process.isAlive());
    }

    private void noteReadiness(boolean ready) {
        if (!announced && readiness.wasReady()) {
            LOG.debug("ready after {} s", Math.round((System.nanoTime() - begun) / 1e8) / 10.0);
            announced = true;
            isReady = true;
        }
        if (ready && !isReady) {
            LOG.info("ready again");
        } else if (!ready && isReady && !readiness.isStopping()) {
            LOG.warn("not ready: a worker ended and is being restarted");
        }
        isReady = ready;
    }

    /** Logs one line and ends the process; calls that were still waiting for a worker are refused first. */
    private void giveUp(int exitCode, String message, Object... arguments) throws InterruptedException {
        Thread.sleep(LAST_WORDS_MILLISECONDS);
        if (readiness.isStopping()) {
            return; // a stop that came meanwhile ends the process in its own way
        }
        LOG.error(message, arguments);
        pending.refuseAll();
        Workers.endAll();
        embedded.ifPresent(EmbeddedMetrics::tellAll);
        Runtime.getRuntime().halt(exitCode); // past the shutdown hooks: there is nothing to drain
    }
}
