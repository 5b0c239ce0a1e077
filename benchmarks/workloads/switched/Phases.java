package byoc.endpoints;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.LongAdder;

/**
 * Counting, off and on by turns. At each turn a line goes to the file that BENCH_PHASES names: whether the phase that
 * ended was counted (1 or 0), its seconds, its answers, the seconds of CPU time that java took in it.
 */
final class Phases implements Runnable {
    private static final Phases RUNNING =
            new Phases(Path.of(System.getenv("BENCH_PHASES")), Long.parseLong(System.getenv("BENCH_PHASE_MS")));

    private final OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private final LongAdder answers = new LongAdder();
    private final Path file;
    private final long milliseconds;
    private volatile boolean counted;

    private Phases(Path file, long milliseconds) {
        this.file = file;
        this.milliseconds = milliseconds;
        Thread thread = new Thread(this, "phases");
        thread.setDaemon(true);
        thread.start();
    }

    static Phases running() {
        return RUNNING;
    }

    boolean counted() {
        return counted;
    }

    void answered() {
        answers.increment();
    }

    @Override
    public void run() {
        try {
            while (true) {
                long began = System.nanoTime();
                long cpu = system.getProcessCpuTime();
                long before = answers.sum();
                Thread.sleep(milliseconds);
                double seconds = (System.nanoTime() - began) / 1e9;
                double cpuSeconds = (system.getProcessCpuTime() - cpu) / 1e9;
                String line = (counted ? 1 : 0) + " " + seconds + " " + (answers.sum() - before) + " " + cpuSeconds + "\n";
                counted = !counted;
                Files.writeString(file, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            }
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
