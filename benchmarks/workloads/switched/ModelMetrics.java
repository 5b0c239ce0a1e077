package byoc.endpoints;

/** In place of the class of this name, which is CountedMetrics meanwhile: counts in every second phase only. */
final class ModelMetrics extends CountedMetrics {
    private final Phases phases = Phases.running();
    private Reading last;

    ModelMetrics(String model, Metrics all) {
        super(model, all);
    }

    @Override
    void entered() {
        if (phases.counted()) {
            super.entered();
        }
    }

    @Override
    void left() {
        if (phases.counted()) {
            super.left();
        }
    }

    @Override
    void answered(int status, long arrived, long now) {
        phases.answered();
        if (phases.counted()) {
            super.answered(status, arrived, now);
        }
    }

    @Override
    void queued(double seconds) {
        if (phases.counted()) {
            super.queued(seconds);
        }
    }

    @Override
    void records(double good, double bad) {
        if (phases.counted()) {
            super.records(good, bad);
        }
    }

    @Override
    void batch(BatchReport report) {
        if (phases.counted()) {
            super.batch(report);
        }
    }

    /** Nothing new in a phase that is not counted, so that nothing is printed for CloudWatch. */
    @Override
    synchronized Reading read(int waiting) {
        if (last == null || phases.counted()) {
            last = super.read(waiting);
        }
        return last;
    }
}
