package org.pytorch.serve.util.messages;

import byoc.endpoints.ModelEnvironment;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Pattern;
import org.pytorch.serve.archive.model.Manifest;
import org.pytorch.serve.util.ConfigManager;
import org.pytorch.serve.wlm.Model;

/**
 * The environment of a worker's process, in place of TorchServe's class of this name, which gives all workers the same.
 * With many models each has one of its own: {@link ModelEnvironment}.
 */
public final class EnvironmentUtils {
    private static final String PYTHONPATH = "PYTHONPATH";

    private EnvironmentUtils() {}

    /**
     * The environment as lines of name and value.
     *
     * @param workingDirectory of TorchServe; on Python's path where it is not there already
     * @param modelPath the model's directory, or null
     * @param handler what the manifest names; a path with a function behind a colon has its folder on Python's path
     * @return one line for each variable
     */
    public static String[] getEnvString(String workingDirectory, String modelPath, String handler) {
        ConfigManager configuration = ConfigManager.getInstance();
        Map<String, String> variables = new HashMap<>(System.getenv());
        variables.putAll(configuration.getBackendConfiguration());
        if (modelPath != null) {
            variables.putAll(ModelEnvironment.of(modelPath));
        }
        variables.put(PYTHONPATH, pythonPath(variables.get(PYTHONPATH), workingDirectory, modelPath, handler));
        Pattern kept = configuration.getBlacklistPattern();
        return variables.entrySet().stream()
                .filter(variable -> !kept.matcher(variable.getKey()).matches())
                .map(variable -> variable.getKey() + '=' + variable.getValue())
                .toArray(String[]::new);
    }

    private static String pythonPath(String given, String workingDirectory, String modelPath, String handler) {
        StringBuilder path = new StringBuilder();
        if (handler != null && handler.contains(":")) {
            String file = handler.split(":")[0];
            path.append(file.contains("/") ? file.substring(0, file.lastIndexOf('/')) : file).append(File.pathSeparatorChar);
        }
        if (given != null) {
            path.append(given).append(File.pathSeparatorChar);
        }
        if (modelPath != null) {
            Path model = Path.of(modelPath);
            path.append(ModelEnvironment.canonical(model)).append(File.pathSeparatorChar);
            if (Files.isSymbolicLink(model)) {
                path.append(model.toAbsolutePath().getParent()).append(File.pathSeparatorChar);
            }
        }
        if (!workingDirectory.contains("site-packages") && !workingDirectory.contains("dist-packages")) {
            path.append(workingDirectory);
        }
        return path.toString();
    }

    /**
     * The interpreter for a model's worker.
     *
     * @param model the model
     * @return its own, where it has a virtual environment, else the server's; for another runtime that one's program
     */
    public static String getPythonRunTime(Model model) {
        if (model.getRuntimeType() != Manifest.RuntimeType.PYTHON) {
            return model.getRuntimeType().getValue();
        }
        Path own = Paths.get(getPythonVenvPath(model).toString(), "bin", "python");
        return model.isUseVenv() && Files.exists(own) ? own.toString() : ConfigManager.getInstance().getPythonExecutable();
    }

    /**
     * Where a model's virtual environment would be.
     *
     * @param model the model
     * @return the folder, which need not exist
     */
    public static File getPythonVenvPath(Model model) {
        File directory = model.getModelDir();
        if (Files.isSymbolicLink(directory.toPath())) {
            directory = directory.getParentFile();
        }
        return Paths.get(directory.getAbsolutePath(), "venv").toAbsolutePath().toFile();
    }

    /**
     * The environment of a worker in C++, of which this server starts none.
     *
     * @param libraries its libraries
     * @return never
     */
    public static String[] getCppEnvString(String libraries) {
        throw new UnsupportedOperationException("workers in C++ are not served: " + libraries);
    }
}
