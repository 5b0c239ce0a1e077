package org.pytorch.serve.wlm;

import byoc.workers.WorkerTemplate;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.pytorch.serve.metrics.IMetric;
import org.pytorch.serve.metrics.Metric;
import org.pytorch.serve.metrics.MetricCache;
import org.pytorch.serve.util.ConfigManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What a worker prints: its metrics are kept, two of its lines drive its life, and all others are the log's. */
final class WorkerOutput implements WorkerTemplate.Listener {
    private static final Pattern METRIC = Pattern.compile("^(INFO > )?(\\[METRICS])(.*)");
    private static final Pattern STARTED = Pattern.compile("(.*)(INFO > )?(Torch worker started.)$");
    private static final Pattern PID = Pattern.compile("^(INFO > )?(\\[PID])(\\d+)$");
    private static final Logger MODEL_LOG = LoggerFactory.getLogger("MODEL_LOG");
    private static final Logger LOG = LoggerFactory.getLogger(WorkerLifeCycle.class);

    private final WorkerLifeCycle worker;
    private final ConfigManager configuration;

    WorkerOutput(WorkerLifeCycle worker, ConfigManager configuration) {
        this.worker = worker;
        this.configuration = configuration;
    }

    @Override
    public void printed(String line, boolean error) {
        Matcher metric = METRIC.matcher(line);
        if (metric.matches()) {
            keep(line, Metric.parse(metric.group(3)));
            return;
        }
        if (STARTED.matcher(line).matches()) {
            worker.setSuccess(true);
        } else {
            Matcher pid = PID.matcher(line);
            if (pid.matches()) {
                worker.setPid(Integer.parseInt(pid.group(3)));
            }
        }
        if (error) {
            MODEL_LOG.warn(line);
        } else {
            MODEL_LOG.info(line);
        }
    }

    @Override
    public void ended() {
        worker.setSuccess(false);
    }

    private void keep(String line, Metric metric) {
        if (metric == null) {
            LOG.error("Failed to parse metrics line: \"{}\".", line);
            return;
        }
        try {
            MetricCache cache = MetricCache.getInstance();
            IMetric known = cache.getMetricBackend(metric.getMetricName());
            if (known == null) {
                if (!configuration.isModelMetricsAutoDetectEnabled()) {
                    return;
                }
                known = cache.addAutoDetectMetricBackend(metric);
            }
            List<String> dimensions = metric.getDimensionValues();
            dimensions.add(metric.getHostName());
            known.addOrUpdate(dimensions, metric.getRequestId(), Double.parseDouble(metric.getValue()));
        } catch (RuntimeException fault) {
            LOG.error("Failed to update backend metric {}", metric.getMetricName(), fault);
        }
    }
}
