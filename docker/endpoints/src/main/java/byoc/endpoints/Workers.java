package byoc.endpoints;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;
import org.pytorch.serve.wlm.Model;
import org.pytorch.serve.wlm.ModelManager;
import org.pytorch.serve.wlm.WorkerState;
import org.pytorch.serve.wlm.WorkerThread;

/** What TorchServe's workers are doing, and their end. */
final class Workers {
    /** How long a worker may take to end by itself once it was asked to. */
    private static final int END_SECONDS = 2;

    private Workers() {}

    static List<WorkerThread> of(Model model) {
        return ModelManager.getInstance().getWorkers(model.getModelVersionName());
    }

    /** Whether the model is registered and one of its workers has it loaded. */
    static boolean anyLoaded(Model model) {
        if (model == null) {
            return false;
        }
        for (WorkerThread worker : of(model)) {
            if (worker.getState() == WorkerState.WORKER_MODEL_LOADED) {
                return true;
            }
        }
        return false;
    }

    /** How many models have a worker that has them loaded. */
    static int loadedModels() {
        return (int) ModelManager.getInstance().getDefaultModels().values().stream().filter(Workers::anyLoaded).count();
    }

    /** The worker's process by its id. */
    static Optional<Process> process(long pid) {
        return ModelManager.getInstance().getDefaultModels().values().stream()
                .flatMap(model -> of(model).stream())
                .map(worker -> worker.getLifeCycle().getProcess())
                .filter(process -> process != null && process.pid() == pid)
                .findFirst();
    }

    static boolean isStopped(WorkerThread worker) {
        return worker.getState() == WorkerState.WORKER_STOPPED || worker.getState() == WorkerState.WORKER_ERROR;
    }

    /**
     * Asks every worker process to end, and ends those that do not, with whatever they started. ModelServer.stop
     * does this by the {@code kill} program, which a slim image lacks, and takes seconds for its event loops.
     */
    static void endAll() throws InterruptedException {
        Configurator.setAllLevels("org.pytorch.serve", Level.OFF); // it reports the end of a worker as an error of its own
        ModelManager manager = ModelManager.getInstance();
        if (manager == null) {
            return; // the stop came before TorchServe got to its models
        }
        List<ProcessHandle> processes = manager.getDefaultModels().values().stream()
                .flatMap(model -> of(model).stream())
                .map(worker -> worker.getLifeCycle().getProcess())
                .filter(process -> process != null)
                .map(Process::toHandle)
                .flatMap(process -> Stream.concat(process.descendants(), Stream.of(process)))
                .toList();
        processes.forEach(ProcessHandle::destroy);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(END_SECONDS);
        while (processes.stream().anyMatch(ProcessHandle::isAlive) && System.nanoTime() - deadline < 0) {
            Thread.sleep(10);
        }
        processes.forEach(ProcessHandle::destroyForcibly);
    }
}
