package byoc.endpoints;

import java.util.Map;
import java.util.function.IntSupplier;

/** Drives the frontend's metrics without a server, for test_frontend_metrics.py. */
public final class MetricsProbe {
    private MetricsProbe() {}

    public static void main(String[] arguments) {
        IntSupplier none = () -> 0;
        Metrics metrics = new Metrics(model -> model.length(), none);
        String empty = metrics.text();
        EmbeddedMetrics embedded = new EmbeddedMetrics(metrics, new EmfSettings("probe", Map.of(), 60));
        ModelMetrics first = metrics.of("a/b:ü \"1\"");
        ModelMetrics second = metrics.of("second");
        for (double seconds : new double[] {0.0001, 0.003, 0.2, 7, 90, 200}) {
            first.answered(200, 0, Math.round(seconds * 1e9));
            first.queued(seconds);
        }
        first.answered(418, 0, 1_000_000);
        first.batch(BatchReport.parse("requests=3;handler_s=0.2;forward_s=0.1;tokens=40;padding=2;microbatches=5,300,2000"));
        first.batch(BatchReport.parse("requests=200;handler_s=0.2;forward_s=0.1"));
        embedded.tellAll();
        first.answered(503, 0, 1_000_000);
        metrics.remove("a/b:ü \"1\"");
        first.answered(200, 0, 1_000_000); // a call that ends after its model has gone
        second.answered(200, 0, 1_000_000);
        metrics.remove("second");
        metrics.remove("never there");
        System.out.println("left as at first: " + metrics.text().equals(empty));
        metrics.of("second").answered(404, 0, 1_000_000);
        System.out.println(metrics.text());
    }
}
