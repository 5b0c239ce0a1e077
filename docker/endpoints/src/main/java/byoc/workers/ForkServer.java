package byoc.workers;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One run of the template's process, and both pipes to it. The messages are those of the entrypoint's {@code forking}
 * module. One thread reads, however many workers there are.
 */
final class ForkServer {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");

    /** The imports come before the first fork, and a busy machine takes its time for them. */
    private static final int FORK_SECONDS = 120;

    private static final Gson JSON = new Gson();

    /** A worker that was ordered: first only that, then its process. */
    private static final class Ordered {
        private final WorkerTemplate.Listener listener;
        private final CompletableFuture<ForkedWorker> started = new CompletableFuture<>();

        private Ordered(WorkerTemplate.Listener listener) {
            this.listener = listener;
        }

        private void end(int code) {
            ForkedWorker worker = started.getNow(null);
            if (worker != null) {
                worker.end(code);
            }
            listener.ended();
        }
    }

    private final Map<Integer, Ordered> workers = new ConcurrentHashMap<>();
    private final AtomicInteger orders = new AtomicInteger();
    private final Process process;
    private boolean ended;

    ForkServer(List<String> command) throws IOException {
        process = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        Thread reader = new Thread(this::read, "byoc-worker-template");
        reader.setDaemon(true);
        reader.start();
    }

    synchronized boolean hasEnded() {
        return ended || !process.isAlive();
    }

    Process fork(List<String> arguments, String[] environment, File directory, WorkerTemplate.Listener listener)
            throws IOException, InterruptedException {
        int id = orders.incrementAndGet();
        Ordered ordered = new Ordered(listener);
        send(id, ordered, Map.of(
                "id", id, "arguments", arguments, "environment", byName(environment), "directory", directory.getPath()));
        try {
            return ordered.started.get(FORK_SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException refused) {
            if (refused.getCause() instanceof IOException cause) {
                throw cause;
            }
            throw new IOException(refused.getCause());
        } catch (TimeoutException late) {
            process.destroyForcibly(); // whatever it does, it does not fork
            throw new WorkerTemplate.UnavailableException("The worker template does not answer; it is ended", late);
        }
    }

    private static Map<String, String> byName(String... environment) {
        return Stream.of(environment)
                .map(variable -> variable.split("=", 2))
                .filter(pair -> pair.length == 2)
                .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1], (first, last) -> last));
    }

    private synchronized void send(int id, Ordered ordered, Map<String, Object> order) throws IOException {
        if (ended) {
            throw gone();
        }
        workers.put(id, ordered);
        try {
            OutputStream pipe = process.getOutputStream();
            pipe.write((JSON.toJson(order) + "\n").getBytes(StandardCharsets.UTF_8));
            pipe.flush();
        } catch (IOException broken) {
            workers.remove(id);
            throw gone();
        }
    }

    private static WorkerTemplate.UnavailableException gone() {
        return new WorkerTemplate.UnavailableException("The worker template ended", null);
    }

    private void read() {
        try (BufferedReader reports =
                new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = reports.readLine(); line != null; line = reports.readLine()) {
                take(JsonParser.parseString(line).getAsJsonObject());
            }
        } catch (IOException | RuntimeException fault) {
            LOG.error("What the worker template reports cannot be read", fault);
            process.destroyForcibly();
        } finally {
            end();
        }
    }

    private void take(JsonObject report) {
        int id = report.get("id").getAsInt();
        Ordered worker = workers.get(id);
        if (worker == null) {
            return;
        }
        if (report.has("out")) {
            worker.listener.printed(report.get("out").getAsString(), false);
        } else if (report.has("err")) {
            worker.listener.printed(report.get("err").getAsString(), true);
        } else if (report.has("pid")) {
            started(worker, report.get("pid").getAsLong());
        } else if (report.has("refused")) {
            workers.remove(id);
            worker.started.completeExceptionally(
                    new IOException("no process for a worker: " + report.get("refused").getAsString()));
        } else {
            workers.remove(id);
            worker.end(report.get("ended").getAsInt());
        }
    }

    private static void started(Ordered worker, long pid) {
        ProcessHandle.of(pid).ifPresentOrElse(
                handle -> worker.started.complete(new ForkedWorker(handle)),
                () -> worker.started.completeExceptionally(new IOException("the worker ended as soon as it was started")));
    }

    /** The kernel ends the workers with the process that they came from. */
    private void end() {
        synchronized (this) {
            ended = true;
        }
        for (Ordered worker : workers.values()) {
            worker.started.completeExceptionally(gone());
            worker.end(ForkedWorker.KILLED);
        }
        workers.clear();
    }
}
