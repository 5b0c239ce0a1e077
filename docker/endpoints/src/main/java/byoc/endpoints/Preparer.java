package byoc.endpoints;

import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The other side of {@code entrypoint/preparer.py}, which knows artefacts, settings and memory: a question is a line of
 * JSON on its input, the answer one on its output. The process is started when it is first needed, and again when it
 * ended; what it was asked then has no answer.
 */
final class Preparer {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");

    /** pip has ten minutes for what a script needs. */
    private static final int PATIENCE_SECONDS = 900;

    private final List<String> command;
    private final AtomicLong numbers = new AtomicLong();
    private Map<Long, CompletableFuture<JsonObject>> waiting;
    private Process process;
    private Writer questions;

    /** Takes the program and the work directory, a blank between them. */
    Preparer(String programAndDirectory) {
        String[] words = programAndDirectory.split(" ", 2);
        command = List.of(words[0], "prepare-models", words[1]);
    }

    /** Asks and waits for the answer. Throws LoadRefused for a refusal, and for a preparer that does not answer. */
    JsonObject ask(String what, JsonObject question) throws LoadRefused, InterruptedException {
        long number = numbers.incrementAndGet();
        CompletableFuture<JsonObject> answer = new CompletableFuture<>();
        question.addProperty("do", what);
        question.addProperty("id", number);
        try {
            send(question, number, answer);
            JsonObject told = answer.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
            if (told.has("refused")) {
                throw new LoadRefused(
                        told.has("fault") ? ErrorType.MODEL_ERROR : ErrorType.BAD_REQUEST, told.get("refused").getAsString());
            }
            return told;
        } catch (IOException | ExecutionException | TimeoutException silent) {
            LOG.error("The process that prepares models does not answer: {}", silent.toString());
            throw new LoadRefused(ErrorType.MODEL_ERROR, "The model could not be prepared; the container's log says why.");
        }
    }

    private synchronized void send(JsonObject question, long number, CompletableFuture<JsonObject> answer)
            throws IOException {
        start();
        waiting.put(number, answer);
        questions.write(question + "\n");
        questions.flush();
    }

    /** Starts the process, unless it runs: what it imports takes a moment. */
    synchronized void start() throws IOException {
        if (process != null && process.isAlive()) {
            return;
        }
        Process started = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        Map<Long, CompletableFuture<JsonObject>> asked = new ConcurrentHashMap<>();
        process = started;
        waiting = asked;
        questions = started.outputWriter(StandardCharsets.UTF_8);
        Thread reader = new Thread(() -> read(started, asked), "byoc-preparer");
        reader.setDaemon(true);
        reader.start();
    }

    private static void read(Process started, Map<Long, CompletableFuture<JsonObject>> asked) {
        try (BufferedReader answers = started.inputReader(StandardCharsets.UTF_8)) {
            for (String line = answers.readLine(); line != null; line = answers.readLine()) {
                JsonObject answer = JsonParser.parseString(line).getAsJsonObject();
                asked.remove(answer.get("id").getAsLong()).complete(answer);
            }
        } catch (IOException | JsonParseException | IllegalStateException unreadable) {
            LOG.error("The process that prepares models cannot be understood: {}", unreadable.toString());
            started.destroyForcibly();
        }
        asked.values().forEach(answer -> answer.completeExceptionally(new IOException("it ended")));
    }
}
