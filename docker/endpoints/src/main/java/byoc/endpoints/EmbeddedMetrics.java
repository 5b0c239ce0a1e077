package byoc.endpoints;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The metrics as lines on stdout that CloudWatch Logs takes metrics from, by the specification of its embedded metric
 * format: for each period one line per model to which something happened, with what happened since its last line.
 * Nothing is called. A distribution is written as values and counts, as AWS's own exporters do: the specification's
 * array of at most 100 numbers could not tell how often each of them occurred.
 *
 * <p>A line stays far within the limits of the format (100 metrics, 100 values of each, 256 KB): there are as many
 * metrics as {@link ModelMetrics.Reading} has members, and at most as many values as a histogram has buckets.
 */
final class EmbeddedMetrics implements Runnable {
    private static final Logger LINES = LoggerFactory.getLogger("byoc.emf");
    private static final String MODEL = "Model";
    private static final int LONGEST_VALUE = 1024;

    private final Metrics metrics;
    private final EmfSettings settings;
    private final Map<ModelMetrics, ModelMetrics.Reading> told = new WeakHashMap<>();

    EmbeddedMetrics(Metrics metrics, EmfSettings settings) {
        this.metrics = metrics;
        this.settings = settings;
        metrics.beforeRemoval(this::tell);
    }

    @Override
    public void run() {
        try {
            while (true) {
                TimeUnit.SECONDS.sleep(settings.seconds());
                tellAll();
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    /** Prints what was not printed yet; for the end as well. */
    void tellAll() {
        metrics.models().forEach(this::tell);
    }

    private synchronized void tell(ModelMetrics model) {
        ModelMetrics.Reading now = model.read(metrics.waiting(model.name()));
        ModelMetrics.Reading news = told.containsKey(model) ? now.since(told.get(model)) : now;
        told.put(model, now);
        if (news.isEventful()) {
            LINES.info("{}", line(model.name(), news));
        }
    }

    private JsonObject line(String model, ModelMetrics.Reading news) {
        JsonArray definitions = new JsonArray();
        JsonObject line = new JsonObject();
        line.add("_aws", directive(definitions));
        settings.dimensions().forEach(line::addProperty);
        line.addProperty(MODEL, dimension(model));
        news.amounts().forEach((name, amount) -> {
            define(definitions, name, "Count");
            line.addProperty(name, amount);
        });
        news.times().forEach((name, distribution) -> add(line, definitions, name, "Seconds", distribution, 0));
        news.sizes().forEach((name, distribution) -> add(line, definitions, name, "Count", distribution, 1));
        return line;
    }

    private JsonObject directive(JsonArray definitions) {
        JsonArray names = new JsonArray();
        settings.dimensions().keySet().forEach(names::add);
        names.add(MODEL);
        JsonArray sets = new JsonArray();
        sets.add(names);
        JsonObject directive = new JsonObject();
        directive.addProperty("Namespace", settings.namespace());
        directive.add("Dimensions", sets);
        directive.add("Metrics", definitions);
        JsonArray directives = new JsonArray();
        directives.add(directive);
        JsonObject aws = new JsonObject();
        aws.addProperty("Timestamp", System.currentTimeMillis());
        aws.add("CloudWatchMetrics", directives);
        return aws;
    }

    private static void add(
            JsonObject line, JsonArray definitions, String name, String unit, Distribution distribution, double grain) {
        if (distribution.count() > 0) { // an empty one is no valid value
            define(definitions, name, unit);
            line.add(name, distribution.cloudWatch(grain));
        }
    }

    private static void define(JsonArray definitions, String name, String unit) {
        JsonObject definition = new JsonObject();
        definition.addProperty("Name", name);
        definition.addProperty("Unit", unit);
        definitions.add(definition);
    }

    /** The name as CloudWatch takes it: printable ASCII (anything else percent-encoded), no colon in front, not too long. */
    private static String dimension(String name) {
        StringBuilder safe = new StringBuilder();
        for (byte octet : name.getBytes(StandardCharsets.UTF_8)) {
            boolean plain = octet > ' ' && octet < 0x7f && (octet != ':' || safe.length() > 0);
            safe.append(plain ? String.valueOf((char) octet) : String.format("%%%02X", octet));
        }
        return safe.isEmpty() ? "-" : safe.substring(0, Math.min(LONGEST_VALUE, safe.length()));
    }
}
