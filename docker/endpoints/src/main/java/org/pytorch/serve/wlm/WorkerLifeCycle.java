package org.pytorch.serve.wlm;

import byoc.workers.WorkerTemplate;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.pytorch.serve.archive.model.ModelConfig;
import org.pytorch.serve.util.ConfigManager;
import org.pytorch.serve.util.Connector;
import org.pytorch.serve.util.messages.EnvironmentUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Takes the place of TorchServe's class of this name, which our jar precedes on the class path: one worker's process, from
 * its start to its end. A worker is forked from the {@link WorkerTemplate} where there is one; otherwise, and for what a
 * fork cannot be (torchrun, the launcher that pins cores, an environment of the model's own), it is started as TorchServe
 * starts it. Workers in C++ are not in this installation.
 */
public class WorkerLifeCycle {
    private static final Logger LOG = LoggerFactory.getLogger(WorkerLifeCycle.class);
    private static final int START_MINUTES = 2;

    static {
        WorkerThread.BACK_OFF[1] = 0; // seconds before a first restart: only one that fails again has to wait
    }

    private final ConfigManager configManager;
    private final Model model;
    private final int workers;
    private final int runningWorkers;
    private int pid = -1;
    private Process process;
    private Connector connector;
    private CountDownLatch latch;
    private volatile boolean success;

    public WorkerLifeCycle(ConfigManager configManager, Model model) {
        this.configManager = configManager;
        this.model = model;
        workers = model.getMinWorkers();
        runningWorkers = ModelManager.getInstance().getNumRunningWorkers(model.getModelVersionName());
    }

    public Process getProcess() {
        return process;
    }

    public ArrayList<String> launcherArgsToList(String launcherArgs) {
        ArrayList<String> arguments = new ArrayList<>(List.of("-m", "torch.backends.xeon.run_cpu"));
        if (launcherArgs != null && launcherArgs.length() > 1) {
            arguments.addAll(Arrays.asList(launcherArgs.split(" ")));
        }
        return arguments;
    }

    public boolean isLauncherAvailable(String launcherArgs) throws WorkerInitializationException, InterruptedException {
        List<String> command = new ArrayList<>(List.of("python"));
        command.addAll(launcherArgsToList(launcherArgs));
        command.addAll(List.of("--no_python", "hostname"));
        try {
            return Runtime.getRuntime().exec(command.toArray(new String[0])).waitFor() == 0;
        } catch (IOException | InterruptedException cause) {
            throw new WorkerInitializationException("Failed to start launcher", cause);
        }
    }

    /** Starts the worker and waits until it listens. */
    public void startWorker(int port, String deviceIds) throws WorkerInitializationException, InterruptedException {
        if ("LSP".equals(model.getRuntimeType().getValue())) {
            throw new WorkerInitializationException("model_worker_socket not found");
        }
        synchronized (this) {
            connector = new Connector(port);
        }
        boolean parallel = model.getParallelLevel() > 0;
        boolean torchrun = parallel && model.getParallelType() != ModelConfig.ParallelType.CUSTOM;
        latch = new CountDownLatch(torchrun ? model.getParallelLevel() : 1);
        try {
            List<String> environment = environment();
            List<String> runner = torchrun ? torchrun(environment, port, deviceIds) : python(parallel, environment, deviceIds);
            launch(port, runner, environment);
            if (!latch.await(START_MINUTES, TimeUnit.MINUTES)) {
                throw new WorkerInitializationException("Backend worker startup time out.");
            }
            if (!success) {
                throw new WorkerInitializationException("Backend stream closed.");
            }
        } catch (IOException cause) {
            throw new WorkerInitializationException("Failed start worker process", cause);
        } finally {
            if (!success) {
                exit();
            }
        }
    }

    private List<String> environment() {
        String handler = model.getModelArchive().getManifest().getModel().getHandler();
        String[] variables = EnvironmentUtils.getEnvString(
                home().getAbsolutePath(), model.getModelDir().getAbsolutePath(), handler);
        return new ArrayList<>(Arrays.asList(variables));
    }

    private File home() {
        return new File(configManager.getModelServerHome());
    }

    private List<String> python(boolean parallel, List<String> environment, String deviceIds)
            throws WorkerInitializationException, InterruptedException {
        List<String> command = new ArrayList<>(List.of(EnvironmentUtils.getPythonRunTime(model)));
        if (parallel && deviceIds != null) {
            environment.add("CUDA_VISIBLE_DEVICES=" + deviceIds);
        } else if (!parallel && configManager.isCPULauncherEnabled()) {
            String launcherArguments = configManager.getCPULauncherArgs();
            if (isLauncherAvailable(launcherArguments)) {
                command.addAll(launcherArgsToList(launcherArguments));
                if (workers > 1) {
                    command.addAll(List.of("--ninstances", String.valueOf(workers)));
                    command.addAll(List.of("--rank", String.valueOf(runningWorkers)));
                }
            } else {
                LOG.warn("torch.backends.xeon.run_cpu is not available: workers are not pinned to cores");
            }
        }
        return command;
    }

    private List<String> torchrun(List<String> environment, int port, String deviceIds) {
        environment.add("LOGLEVEL=INFO");
        if (deviceIds != null) {
            environment.add("CUDA_VISIBLE_DEVICES=" + deviceIds);
        }
        ModelConfig.TorchRun torchRun = model.getModelArchive().getModelConfig().getTorchRun();
        environment.add("OMP_NUM_THREADS=" + torchRun.getOmpNumberThreads());
        List<String> command = new ArrayList<>(List.of("torchrun"));
        command.addAll(List.of("--nnodes", String.valueOf(torchRun.getNnodes())));
        command.addAll(List.of("--nproc-per-node", String.valueOf(torchRun.getNprocPerNode())));
        command.addAll(List.of("--log-dir", ConfigManager.getInstance().getTorchRunLogDir()));
        command.addAll(List.of("--rdzv-backend", torchRun.getRdzvBackend()));
        if (torchRun.getRdzvEndpoint() != null) {
            command.addAll(List.of("--rdzv-endpoint", torchRun.getRdzvEndpoint()));
        }
        command.addAll(List.of("--rdzv-id", model.getModelName() + "_" + port));
        if (torchRun.getMasterAddr() != null) {
            command.addAll(List.of("--master-addr", torchRun.getMasterAddr()));
            command.addAll(List.of("--master-port", String.valueOf(torchRun.getMasterPort())));
        }
        command.addAll(List.of("--max-restarts", "1"));
        return command;
    }

    private List<String> program() {
        List<String> arguments = new ArrayList<>();
        arguments.add(new File(home(), "ts/model_service_worker.py").getAbsolutePath());
        arguments.addAll(List.of("--sock-type", connector.getSocketType()));
        arguments.addAll(List.of(connector.isUds() ? "--sock-name" : "--port", connector.getSocketPath()));
        arguments.addAll(List.of("--metrics-config", configManager.getMetricsConfigPath()));
        if (model.isAsyncCommunication()) {
            arguments.add("--async");
        }
        return arguments;
    }

    private void launch(int port, List<String> runner, List<String> environment) throws IOException, InterruptedException {
        String name = "W-" + port + "-" + model.getModelVersionName().getVersionedModelName();
        WorkerOutput output = new WorkerOutput(this, configManager);
        String[] variables = environment.toArray(new String[0]);
        boolean plain = runner.equals(List.of(configManager.getPythonExecutable())) && model.getParallelLevel() == 0;
        boolean restart = getProcess() != null; // TorchServe keeps this object while it replaces the process
        if (plain && (restart ? WorkerTemplate.isWantedForRestarts() : WorkerTemplate.isWanted())) {
            try {
                become(WorkerTemplate.instance()
                        .start(runner.get(0), program(), variables, model.getModelDir(), output));
                return;
            } catch (WorkerTemplate.UnavailableException without) {
                LOG.warn("{}: {} is started without it", without.getMessage(), name);
            }
        }
        List<String> command = new ArrayList<>(runner);
        command.addAll(program());
        LOG.debug("Worker cmdline: {}", command);
        Process child = Runtime.getRuntime().exec(command.toArray(new String[0]), variables, model.getModelDir());
        become(child);
        follow(name + "-stderr", child.getErrorStream(), output, true);
        follow(name + "-stdout", child.getInputStream(), output, false);
    }

    private synchronized void become(Process started) {
        process = started;
    }

    /** Reads one stream of a worker to its end, which is the worker's. */
    private static void follow(String name, InputStream stream, WorkerOutput output, boolean error) {
        new Thread(() -> {
                    try (Scanner lines = new Scanner(stream, StandardCharsets.UTF_8)) {
                        while (lines.hasNextLine()) {
                            output.printed(lines.nextLine(), error);
                        }
                    } finally {
                        output.ended();
                    }
                }, name)
                .start();
    }

    public synchronized void exit() {
        if (process != null) {
            process.destroyForcibly();
            connector.clean();
        }
    }

    /** The path of the Unix socket that the worker listens at, if it was ever started and listens at one. */
    public synchronized Optional<String> getSocket() {
        return Optional.ofNullable(connector).filter(Connector::isUds).map(Connector::getSocketPath);
    }

    public synchronized Integer getExitValue() {
        return process != null && !process.isAlive() ? process.exitValue() : null;
    }

    /** The worker listens, or never will. */
    public void setSuccess(boolean success) {
        this.success = success;
        latch.countDown();
    }

    public synchronized int getPid() {
        return pid;
    }

    public synchronized void setPid(int pid) {
        this.pid = pid;
    }
}
