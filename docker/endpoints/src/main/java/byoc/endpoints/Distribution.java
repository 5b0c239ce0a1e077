package byoc.endpoints;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import io.prometheus.client.Histogram;

/**
 * What a histogram saw, or what it saw since an earlier look.
 *
 * @param bounds the upper bounds of its buckets, the last of them infinite
 * @param counts observations in each bucket, those of the buckets below not among them
 * @param sum of all that was observed
 */
record Distribution(double[] bounds, double[] counts, double sum) {

    /** All that the histogram of these finite bounds has seen. */
    static Distribution of(Histogram.Child histogram, double... finiteBounds) {
        Histogram.Child.Value seen = histogram.get();
        double[] bounds = new double[seen.buckets.length];
        double[] counts = new double[seen.buckets.length];
        for (int bucket = 0; bucket < bounds.length; bucket++) {
            bounds[bucket] = bucket < finiteBounds.length ? finiteBounds[bucket] : Double.POSITIVE_INFINITY;
            counts[bucket] = seen.buckets[bucket] - (bucket == 0 ? 0 : seen.buckets[bucket - 1]);
        }
        return new Distribution(bounds, counts, seen.sum);
    }

    Distribution since(Distribution earlier) {
        double[] grown = new double[counts.length];
        for (int bucket = 0; bucket < grown.length; bucket++) {
            grown[bucket] = Math.max(0, counts[bucket] - earlier.counts[bucket]);
        }
        return new Distribution(bounds, grown, sum - earlier.sum);
    }

    double count() {
        double total = 0;
        for (double count : counts) {
            total += count;
        }
        return total;
    }

    /**
     * As CloudWatch takes a distribution: one value for each bucket that is not empty, and how often it occurred. A
     * bucket does not tell where in it its observations lie; they are placed so that the sum, and with it the average,
     * is what it was.
     *
     * @param grain the smallest difference between two observations: 1 for whole numbers, 0 for times
     */
    JsonObject cloudWatch(double grain) {
        double[] values = values(grain);
        JsonArray shown = new JsonArray();
        JsonArray occurred = new JsonArray();
        double least = Double.POSITIVE_INFINITY;
        double most = 0;
        for (int bucket = 0; bucket < values.length; bucket++) {
            if (counts[bucket] > 0) {
                shown.add(values[bucket]);
                occurred.add(counts[bucket]);
                least = Math.min(least, values[bucket]);
                most = Math.max(most, values[bucket]);
            }
        }
        JsonObject distribution = new JsonObject();
        distribution.add("Values", shown);
        distribution.add("Counts", occurred);
        distribution.addProperty("Min", least);
        distribution.addProperty("Max", most);
        distribution.addProperty("Count", count());
        distribution.addProperty("Sum", sum);
        return distribution;
    }

    private double[] values(double grain) {
        double lowest = 0;
        double room = 0;
        for (int bucket = 0; bucket < counts.length - 1; bucket++) {
            lowest += counts[bucket] * low(bucket, grain);
            room += counts[bucket] * (bounds[bucket] - low(bucket, grain));
        }
        int last = counts.length - 1;
        double beyond = counts[last] * low(last, grain);
        double share = room > 0 ? Math.min(1, Math.max(0, (sum - beyond - lowest) / room)) : 0;
        double[] values = new double[counts.length];
        for (int bucket = 0; bucket < last; bucket++) {
            values[bucket] = low(bucket, grain) + share * (bounds[bucket] - low(bucket, grain));
        }
        double rest = counts[last] > 0 ? (sum - lowest - share * room) / counts[last] : 0;
        values[last] = Math.max(low(last, grain), rest);
        return values;
    }

    /** The least that the bucket takes. */
    private double low(int bucket, double grain) {
        return (bucket == 0 ? 0 : bounds[bucket - 1]) + grain;
    }
}
