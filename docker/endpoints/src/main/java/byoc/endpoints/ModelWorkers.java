package byoc.endpoints;

import com.google.gson.JsonArray;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import io.netty.handler.codec.http.HttpResponseStatus;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.pytorch.serve.archive.DownloadArchiveException;
import org.pytorch.serve.archive.model.ModelArchive;
import org.pytorch.serve.archive.model.ModelException;
import org.pytorch.serve.http.messages.RegisterModelRequest;
import org.pytorch.serve.wlm.Model;
import org.pytorch.serve.wlm.ModelManager;
import org.pytorch.serve.wlm.WorkerInitializationException;
import org.pytorch.serve.wlm.WorkerThread;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Models into TorchServe and out of it again, with their workers, by its classes: its management API leaves half-registered
 * models behind and kills by a program that a slim image lacks. TorchServe's own restarts are off for these models, because
 * one that it has scheduled would start a worker for a model that was unloaded meanwhile; {@link ModelCare} restarts them.
 */
final class ModelWorkers {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");

    /** What TorchServe may take for a worker's start before the time for loading begins. */
    private static final int START_SECONDS = 150;

    private static final int END_SECONDS = 60;
    private static final int LOOK_MILLISECONDS = 2;

    private final Preparer preparer;

    ModelWorkers(Preparer preparer) {
        this.preparer = preparer;
    }

    /** Registers the prepared model and starts its workers. Throws LoadRefused when one of them cannot load it. */
    void start(ServedModel served, JsonObject prepared) throws LoadRefused, InterruptedException {
        int workers = prepared.get("workers").getAsInt();
        int status;
        try {
            Model model = register(served, prepared.get("directory").getAsString());
            Future<Integer> started = ModelManager.getInstance()
                    .updateModel(served.id(), model.getVersion(), workers, workers, true, false);
            status = started.get(START_SECONDS + (long) model.getStartupTimeout(), TimeUnit.SECONDS);
        } catch (TimeoutException slow) {
            throw new LoadRefused(ErrorType.MODEL_ERROR, "The model was not loaded in time: BYOC_STARTUP_TIMEOUT gives it more.");
        } catch (ModelException | DownloadArchiveException | WorkerInitializationException | IOException
                | ExecutionException fault) {
            LOG.error("TorchServe does not take model {}", served.name(), fault);
            throw new LoadRefused(ErrorType.MODEL_ERROR, "The model could not be loaded; the container's log says why.");
        }
        if (status != HttpResponseStatus.OK.code() || !becomesLoaded(served.model())) {
            throw failure(served, status);
        }
    }

    private static Model register(ServedModel served, String directory)
            throws ModelException, IOException, InterruptedException, DownloadArchiveException {
        ModelManager manager = ModelManager.getInstance();
        // Only the negatives of its defaults make TorchServe take size and delay from the directory's model-config.yaml.
        int size = -RegisterModelRequest.DEFAULT_BATCH_SIZE;
        int delay = -RegisterModelRequest.DEFAULT_MAX_BATCH_DELAY;
        ModelArchive archive =
                manager.registerModel(directory, served.id(), null, null, size, delay, 1, 1, served.id(), false, false, false);
        Model model = manager.getModel(served.id(), archive.getModelVersion());
        model.setMaxRetryTimeoutInMill(0);
        served.registered(model);
        return model;
    }

    /** TorchServe tells that its workers are ready a moment before each of them says so itself. */
    private static boolean becomesLoaded(Model model) throws InterruptedException {
        while (!Workers.anyLoaded(model)) {
            if (Workers.of(model).stream().anyMatch(Workers::isStopped)) {
                return false;
            }
            Thread.sleep(LOOK_MILLISECONDS);
        }
        return true;
    }

    /** Exit codes do not tell: TorchServe kills every worker that failed. */
    private LoadRefused failure(ServedModel served, int status) throws InterruptedException {
        boolean killed = status == HttpResponseStatus.INSUFFICIENT_STORAGE.code()
                || status == HttpResponseStatus.REQUEST_ENTITY_TOO_LARGE.code();
        JsonObject told = told(served);
        if (told.get("sentence").isJsonNull() && (killed || told.get("killed").getAsBoolean())) {
            return new LoadRefused(ErrorType.INSUFFICIENT_MEMORY, "The memory did not suffice to load the model: "
                    + "unload other models first, or give the container more.");
        }
        return new LoadRefused(ErrorType.MODEL_ERROR, reason(told, "The model could not be loaded"));
    }

    /** What happened and, where the worker told it, why. */
    String reason(ServedModel served, String what) throws InterruptedException {
        return reason(told(served), what);
    }

    private static String reason(JsonObject told, String what) {
        return told.get("sentence").isJsonNull()
                ? what + "; the container's log says why."
                : what + ": " + told.get("sentence").getAsString();
    }

    private JsonObject told(ServedModel served) throws InterruptedException {
        try {
            return preparer.ask("explain", question(served));
        } catch (LoadRefused unknown) {
            JsonObject nothing = new JsonObject();
            nothing.add("sentence", JsonNull.INSTANCE);
            nothing.addProperty("killed", false);
            return nothing;
        }
    }

    /** Lets the next model of this kind be judged by what this one takes; returns that, in bytes. */
    long measure(ServedModel served) throws InterruptedException {
        JsonArray workers = new JsonArray();
        processes(served).forEach(process -> workers.add(process.pid()));
        JsonObject question = question(served);
        question.add("workers", workers);
        try {
            return preparer.ask("measure", question).get("memory").getAsLong();
        } catch (LoadRefused unknown) {
            LOG.warn("The memory of model {} cannot be measured: {}", served.name(), unknown.getMessage());
            return 0;
        }
    }

    /** Ends the workers and forgets the model; returns whether nothing is left of it. */
    boolean takeDown(ServedModel served) throws InterruptedException {
        boolean ended = served.model() == null || endWorkers(served);
        if (served.model() != null) {
            // TorchServe counts its sockets on, so that each model's worker has one of its own.
            Workers.of(served.model()).forEach(worker -> worker.getLifeCycle().getSocket().ifPresent(WorkerDeath::forget));
            ModelManager.getInstance().unregisterModel(served.id(), served.model().getVersion(), true);
            removeLink(served.model().getModelDir());
        }
        try {
            preparer.ask("discard", question(served));
        } catch (LoadRefused left) {
            LOG.warn("What belongs to model {} cannot be removed: {}", served.name(), left.getMessage());
        }
        return ended;
    }

    /** A worker's thread may be about to start its process: it is over only when the thread is. */
    private static boolean endWorkers(ServedModel served) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(END_SECONDS);
        while (System.nanoTime() - deadline < 0) {
            processes(served).forEach(ModelWorkers::kill);
            if (Workers.of(served.model()).stream().allMatch(worker -> hasEnded(served, worker))) {
                return true;
            }
            Thread.sleep(LOOK_MILLISECONDS);
        }
        LOG.error("The worker of model {} does not end", served.name());
        return false;
    }

    private static void kill(Process process) {
        if (process.isAlive()) {
            List<ProcessHandle> below = ProcessHandle.of(process.pid()).stream().flatMap(ProcessHandle::descendants).toList();
            process.destroyForcibly();
            below.forEach(ProcessHandle::destroyForcibly);
        }
    }

    private static boolean hasEnded(ServedModel served, WorkerThread worker) {
        Process process = worker.getLifeCycle().getProcess();
        return Workers.isStopped(worker) && !served.restarting().contains(worker) && (process == null || !process.isAlive());
    }

    private static List<Process> processes(ServedModel served) {
        return Workers.of(served.model()).stream()
                .map(worker -> worker.getLifeCycle().getProcess())
                .filter(process -> process != null)
                .toList();
    }

    /** TorchServe works in a link to the directory, within a folder of its own, and removes neither. */
    private static void removeLink(File directory) {
        Path link = directory.toPath();
        try {
            if (Files.isSymbolicLink(link)) {
                Files.delete(link);
                Files.deleteIfExists(link.getParent());
            }
        } catch (IOException left) {
            LOG.debug("{} is left behind", link, left);
        }
    }

    private static JsonObject question(ServedModel served) {
        JsonObject question = new JsonObject();
        question.addProperty("model", served.id());
        return question;
    }
}
