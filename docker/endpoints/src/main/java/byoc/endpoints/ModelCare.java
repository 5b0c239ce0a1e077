package byoc.endpoints;

import java.util.concurrent.TimeUnit;
import org.pytorch.serve.wlm.ModelManager;
import org.pytorch.serve.wlm.WorkerThread;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Looks after the workers of each of several models: restarts those that ended, later each time that one could not load its
 * model, until it gives that model up. No model's fault is a reason to end the container, which serves others.
 */
final class ModelCare implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");
    private static final int PERIOD_MILLISECONDS = 100;
    private static final int SWEEP_EVERY = 10;
    private static final int LONGEST_PAUSE_SECONDS = 30;

    private final Settings settings;
    private final Readiness readiness;
    private final ModelShelf shelf;

    ModelCare(Settings settings, Readiness readiness, ModelShelf shelf) {
        this.settings = settings;
        this.readiness = readiness;
        this.shelf = shelf;
    }

    @Override
    public void run() {
        try {
            for (long round = 0; !readiness.isStopping(); round++) {
                try {
                    boolean sweeps = round % SWEEP_EVERY == 0;
                    shelf.loaded().forEach(served -> look(served, sweeps));
                } catch (RuntimeException fault) { // TorchServe's lists of workers are not safe to read while it scales
                    LOG.warn("A look at the models' workers failed", fault);
                }
                Thread.sleep(PERIOD_MILLISECONDS);
            }
        } catch (InterruptedException ignored) {
            Thread.currentThread().interrupt();
        }
    }

    private void look(ServedModel served, boolean sweeps) {
        if (sweeps) {
            served.pending().sweep(Workers.anyLoaded(served.model()));
        }
        for (WorkerThread worker : Workers.of(served.model())) {
            if (served.starts().observe(worker)) {
                served.metrics().workerStarted();
            }
            Process process = worker.getLifeCycle().getProcess();
            boolean ended = Workers.isStopped(worker) && (process == null || !process.isAlive());
            if (ended && served.failure() == null && !served.restarting().contains(worker)) {
                judge(served, worker);
            }
        }
    }

    private void judge(ServedModel served, WorkerThread worker) {
        int failed = served.starts().failedInARow();
        if (failed > settings.maxRestarts()) {
            shelf.giveUp(served, failed);
        } else if (served.pausing().add(worker)) {
            LOG.warn("The worker of model {} ended and is started again", served.name());
            long pause = failed == 0 ? 0 : Math.min(LONGEST_PAUSE_SECONDS, 1L << Math.min(failed - 1, Integer.SIZE - 2));
            ModelManager.getInstance().getScheduler().schedule(() -> restart(served, worker), pause, TimeUnit.SECONDS);
        }
    }

    private static void restart(ServedModel served, WorkerThread worker) {
        if (served.beginRestart(worker)) {
            ModelManager.getInstance().submitTask(() -> {
                try {
                    worker.run();
                } finally {
                    served.restarting().remove(worker);
                }
            });
        }
    }
}
