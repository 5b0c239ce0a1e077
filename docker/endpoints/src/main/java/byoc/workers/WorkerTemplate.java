package byoc.workers;

import java.io.File;
import java.io.IOException;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The process that workers are forked from, so that none of them imports torch again: started when it is first wanted,
 * and again after it ended. Its workers end with it, and TorchServe replaces them one by one.
 *
 * <p>Where no template can be had, {@link #start} says so, and whoever wants a worker starts one in the ordinary way.
 */
public final class WorkerTemplate {
    /** Hears of a worker, always from one and the same thread. */
    public interface Listener {
        void printed(String line, boolean error);

        void ended();
    }

    /** There is no template to fork from; a worker may still be had without one. */
    public static final class UnavailableException extends IOException {
        private static final long serialVersionUID = 1L;

        UnavailableException(String why, Throwable cause) {
            super(why, cause);
        }
    }

    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");
    private static final String WANTED = System.getProperty("byoc.worker-template", "never");
    private static final WorkerTemplate INSTANCE = new WorkerTemplate();

    /** Room for a worker's command line, which a fork shows in place of the template's. */
    private static final String ROOM = "-".repeat(512);

    private ForkServer server;

    private WorkerTemplate() {}

    /** The one template of this process. */
    public static WorkerTemplate instance() {
        return INSTANCE;
    }

    /** Whether all workers are to come from a template; the entrypoint decides. */
    public static boolean isWanted() {
        return "always".equals(WANTED);
    }

    /** Whether those are that take the place of one that ended. */
    public static boolean isWantedForRestarts() {
        return isWanted() || "restarts".equals(WANTED);
    }

    /** Lets the imports begin, if they have not; returns at once. */
    public void prepare(String python) {
        try {
            running(python);
        } catch (UnavailableException later) {
            LOG.warn("{}", later.getMessage()); // and again with the first worker
        }
    }

    /**
     * Forks a worker. Throws UnavailableException without a template, another IOException when this fork was refused.
     *
     * @param arguments the Python file and what follows it
     * @param environment all of it, as {@code NAME=value}
     */
    public Process start(
            String python, List<String> arguments, String[] environment, File directory, Listener listener)
            throws IOException, InterruptedException {
        return running(python).fork(arguments, environment, directory, listener);
    }

    private synchronized ForkServer running(String python) throws UnavailableException {
        if (server == null || server.hasEnded()) {
            if (server != null) {
                LOG.warn("The worker template ended; it is started again");
            }
            try {
                server = new ForkServer(List.of(python, "-P", "-m", "entrypoint.template", ROOM));
            } catch (IOException cause) {
                throw new UnavailableException("The worker template cannot be started: " + cause.getMessage(), cause);
            }
        }
        return server;
    }
}
