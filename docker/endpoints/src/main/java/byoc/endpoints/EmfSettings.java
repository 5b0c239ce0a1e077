package byoc.endpoints;

import com.google.gson.JsonParser;
import java.util.Map;
import java.util.TreeMap;

/**
 * Where CloudWatch puts the metrics that are printed for it.
 *
 * @param namespace of the metrics; empty when none are to be printed
 * @param dimensions that all of them have beside the model's name
 * @param seconds from one line of a model to its next
 */
record EmfSettings(String namespace, Map<String, String> dimensions, int seconds) {

    /** The entrypoint has checked all of this. */
    static EmfSettings read() {
        Map<String, String> dimensions = new TreeMap<>();
        JsonParser.parseString(System.getProperty("byoc.emf.dimensions", "{}")).getAsJsonObject().entrySet()
                .forEach(entry -> dimensions.put(entry.getKey(), entry.getValue().getAsString()));
        return new EmfSettings(
                System.getProperty("byoc.emf.namespace", ""), dimensions, Integer.getInteger("byoc.emf.seconds", 60));
    }

    boolean wanted() {
        return !namespace.isEmpty();
    }
}
