package byoc.endpoints;

import byoc.workers.WorkerTemplate;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.util.internal.logging.InternalLoggerFactory;
import io.netty.util.internal.logging.Slf4JLoggerFactory;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.security.GeneralSecurityException;
import java.util.HashSet;
import java.util.Optional;
import java.util.Set;
import java.util.function.Function;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.DefaultParser;
import org.apache.commons.cli.ParseException;
import org.pytorch.serve.ModelServer;
import org.pytorch.serve.metrics.MetricCache;
import org.pytorch.serve.servingsdk.impl.PluginsManager;
import org.pytorch.serve.snapshot.InvalidSnapshotException;
import org.pytorch.serve.util.ConfigManager;
import org.pytorch.serve.util.Connector;
import org.pytorch.serve.util.ConnectorType;
import org.pytorch.serve.util.TokenAuthorization;
import org.pytorch.serve.wlm.Model;
import org.pytorch.serve.wlm.ModelManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * TorchServe with a serving port of our own. Models, workers, queue and batches stay TorchServe's, and so does its
 * management port; what the caller sees (routes, limits, refusals, the order of answers, the stop) is decided here,
 * because TorchServe closes the connection on every error, reports itself healthy without a model, and drops the
 * calls in flight when it is stopped. Its gRPC ports and its collector of system metrics are left unstarted: nothing
 * on the platform speaks to them.
 *
 * <p>Exit codes: 0 after a stop with every call answered, 1 when the server could not start, and those of
 * {@link Watchdog} and {@link Drain}.
 */
public final class Frontend extends ModelServer {
    private static final int EXIT_CANNOT_START = 1;

    /** What the kernel holds for us while the event loops are busy; it cuts this to net.core.somaxconn. */
    private static final int BACKLOG = 4096;

    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");

    private final Settings settings;
    private final Readiness readiness = new Readiness();
    private final InFlight inFlight = new InFlight();
    private final PendingCalls pending;
    private final Metrics metrics = new Metrics(this::waiting, Workers::loadedModels);
    private final TraceFeed traces;
    private final Optional<ModelShelf> shelf;

    private Frontend(ConfigManager configuration) {
        super(configuration);
        settings = Settings.read(configuration);
        pending = new PendingCalls(settings.maxPendingBytes());
        traces = new TraceFeed(settings.traceExporter());
        shelf = settings.multiModel()
                ? Optional.of(new ModelShelf(settings, readiness, pending, metrics))
                : Optional.empty();
    }

    /** Takes the arguments of TorchServe's own main class. */
    public static void main(String[] arguments) {
        Thread.setDefaultUncaughtExceptionHandler(
                (thread, fault) -> LOG.error("The thread {} ended on an exception", thread.getName(), fault));
        try {
            prepareTorchServe(arguments);
            new Frontend(ConfigManager.getInstance()).serve();
        } catch (IllegalArgumentException | IOException | ParseException mistake) {
            LOG.error("The server cannot start: {}", mistake.getMessage());
        } catch (Throwable fault) { // whatever it is, threads of TorchServe's would keep the process up
            LOG.error("The server cannot start", fault);
        }
        end();
    }

    /** Not by System.exit: that would run the drain, whose own exit code would hide this one. */
    private static void end() {
        try {
            Workers.endAll(); // TorchServe starts them before it binds a port
        } catch (InterruptedException | RuntimeException fault) {
            LOG.error("The workers cannot be ended", fault);
        } finally {
            Runtime.getRuntime().halt(EXIT_CANNOT_START);
        }
    }

    private static void prepareTorchServe(String... arguments) throws ParseException, IOException {
        CommandLine line = new DefaultParser().parse(ConfigManager.Arguments.getOptions(), arguments, null, false);
        PrintStream console = System.out;
        System.setOut(new PrintStream(OutputStream.nullOutputStream())); // it tells a machine without a GPU so, unasked
        try {
            ConfigManager.init(new ConfigManager.Arguments(line));
        } finally {
            System.setOut(console);
        }
        if (WorkerTemplate.isWanted()) { // it imports while the rest starts
            WorkerTemplate.instance().prepare(ConfigManager.getInstance().getPythonExecutable());
        }
        TokenAuthorization.init();
        PluginsManager.getInstance().initialize();
        MetricCache.init();
        InternalLoggerFactory.setDefaultFactory(Slf4JLoggerFactory.INSTANCE);
    }

    private void serve()
            throws InterruptedException, IOException, GeneralSecurityException, InvalidSnapshotException {
        Optional<JobSummary> summary =
                settings.transformJob() ? Optional.of(new JobSummary(metrics.of(settings.model()))) : Optional.empty();
        Optional<EmbeddedMetrics> embedded =
                settings.emf().wanted() ? Optional.of(new EmbeddedMetrics(metrics, settings.emf())) : Optional.empty();
        Drain drain = new Drain(settings, readiness, inFlight, pending, embedded, summary, traces);
        Runtime.getRuntime().addShutdownHook(new Thread(drain, "byoc-drain"));
        ChannelFuture closed = startRESTserver().get(0);
        traces.start();
        inBackground("byoc-watchdog", watch(summary, embedded));
        embedded.ifPresent(printing -> inBackground("byoc-emf", printing));
        closed.sync();
        Thread.currentThread().join(); // the port closes only when the process ends; leave the last word to that
    }

    private static void inBackground(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    private int waiting(String name) {
        if (shelf.isPresent()) {
            return shelf.get().waiting(name);
        }
        Model model = readiness.model(name);
        return model == null ? 0 : model.getPendingRequestsInJobQueue();
    }

    /** What keeps an eye on the workers: of the one model, without which there is nothing to serve, or of each. */
    private Runnable watch(Optional<JobSummary> summary, Optional<EmbeddedMetrics> embedded) {
        if (shelf.isPresent()) {
            readiness.expectNone();
            return new ModelCare(settings, readiness, shelf.get());
        }
        Set<String> models = new HashSet<>(ModelManager.getInstance().getStartupModels());
        models.add(settings.model());
        readiness.expect(models);
        return new Watchdog(settings, readiness, pending, metrics, embedded, summary);
    }

    /** Binds the serving port to our own pipeline, and every other port as TorchServe does. */
    @Override
    public ChannelFuture initializeServer(
            Connector connector, EventLoopGroup acceptors, EventLoopGroup workers, ConnectorType type)
            throws InterruptedException, IOException, GeneralSecurityException {
        if (type == ConnectorType.ALL) {
            throw new IllegalArgumentException("inference_address and management_address must differ");
        }
        if (type != ConnectorType.INFERENCE_CONNECTOR) {
            return super.initializeServer(connector, acceptors, workers, type);
        }
        ChannelFuture bound = new ServerBootstrap()
                .group(acceptors, workers)
                .channel(connector.getServerChannel())
                .option(ChannelOption.SO_BACKLOG, BACKLOG)
                .option(ChannelOption.SO_REUSEADDR, true)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childOption(ChannelOption.SO_KEEPALIVE, true)
                .childHandler(pipeline())
                .bind(connector.getSocketAddress())
                .await();
        if (!bound.isSuccess()) {
            throw new IOException("cannot listen on " + connector + ": " + bound.cause().getMessage(), bound.cause());
        }
        LOG.debug("listening on {} by {}", connector, connector.getServerChannel().getSimpleName());
        return bound.channel().closeFuture();
    }

    private Pipeline pipeline() {
        InvocationDesk desk = new InvocationDesk(settings, readiness, pending);
        Ledger ledger = new Ledger(inFlight, counting(), new AccessLog(settings.slowNanoseconds()), traces, readiness);
        Optional<ModelRoutes> models = shelf.map(ModelRoutes::new);
        return new Pipeline(settings, pending, new Router(settings, readiness, metrics, desk, models), ledger);
    }

    /** In whose numbers a call is counted. */
    private Function<Exchange, ModelMetrics> counting() {
        if (shelf.isPresent()) {
            return shelf.get()::metricsOf;
        }
        ModelMetrics served = metrics.of(settings.model());
        return call -> served;
    }
}
