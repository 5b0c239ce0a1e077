package byoc.endpoints;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What the worker tells of one batch in the header {@code x-byoc-batch}, for example
 * {@code requests=32;tokens=900;padding=40;truncated=0;handler_s=0.0123;forward_s=0.0101;microbatches=12,20}.
 * A part that is absent or unreadable is left out: a handler that is not ours may send anything.
 *
 * @param numbers the parts with a single finite value of at least 0, by name
 * @param microbatches records in each forward pass
 */
record BatchReport(Map<String, Double> numbers, List<Double> microbatches) {

    static BatchReport parse(String header) {
        Map<String, Double> numbers = new HashMap<>();
        List<Double> microbatches = new ArrayList<>();
        for (String part : header.split(";")) {
            String[] pair = part.split("=", 2);
            if (pair.length < 2) {
                continue;
            }
            String name = pair[0].trim();
            if (!"microbatches".equals(name)) {
                numbers.put(name, number(pair[1]));
                continue;
            }
            for (String records : pair[1].split(",")) {
                microbatches.add(number(records));
            }
        }
        numbers.values().removeIf(value -> value < 0);
        microbatches.removeIf(value -> value < 0);
        return new BatchReport(numbers, microbatches);
    }

    /** The number in the text, or -1 when there is none that a counter could take. */
    static double number(String text) {
        try {
            double value = Double.parseDouble(text.trim());
            return Double.isFinite(value) ? value : -1;
        } catch (NumberFormatException notANumber) {
            return -1;
        }
    }
}
