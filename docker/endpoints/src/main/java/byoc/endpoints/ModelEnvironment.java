package byoc.endpoints;

import com.google.gson.JsonElement;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/**
 * The environment variables of one model's workers that differ from the server's own: written beside the model's directory
 * by whoever prepared it, because its settings follow from its own files.
 */
public final class ModelEnvironment {
    private static final boolean MULTI_MODEL = Boolean.getBoolean("byoc.multi-model");
    private static final String FILE = "environment.json";

    private ModelEnvironment() {}

    /**
     * The variables of a model.
     *
     * @param directory the model's, or a link to it
     * @return names and values; none where there is but one model, whose environment is the server's
     */
    public static Map<String, String> of(String directory) {
        if (!MULTI_MODEL) {
            return Map.of();
        }
        Path file = canonical(Path.of(directory)).resolveSibling(FILE);
        try {
            Map<String, String> variables = new HashMap<>();
            for (Map.Entry<String, JsonElement> variable :
                    JsonParser.parseString(Files.readString(file)).getAsJsonObject().entrySet()) {
                variables.put(variable.getKey(), variable.getValue().getAsString());
            }
            return variables;
        } catch (IOException absent) {
            throw new UncheckedIOException(absent);
        }
    }

    /**
     * The path without links.
     *
     * @param path any path
     * @return the real one, or the absolute one where there is nothing
     */
    public static Path canonical(Path path) {
        try {
            return path.toRealPath();
        } catch (IOException absent) {
            return path.toAbsolutePath();
        }
    }
}
