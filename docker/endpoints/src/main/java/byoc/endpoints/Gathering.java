package byoc.endpoints;

import org.pytorch.serve.wlm.Model;

/**
 * How many calls the worker's next batch waits for, and how long. TorchServe knows one fixed delay. A long one makes
 * lone callers wait for nobody; with a short one, callers that send again as soon as they have their answers fall
 * apart for ever into a batch of the first to return and a batch of the others, and the cores idle in the first.
 *
 * <p>So the smallest delay, 1 ms, is taken as "as short as pays": after a batch of one the next call goes at once;
 * after a larger one the next batch waits until as many calls are there as were served and queued at its end, but for
 * at most a tenth of the time that it took. Any longer delay is the user's word and stays as it is, as it does with
 * several workers, of which one computes while another gathers.
 *
 * <p>A worker that takes batches in while it computes gathers by itself, and better, since it knows what it runs: to
 * such a one whatever is queued goes at once.
 */
final class Gathering {
    private static final int SMALLEST_DELAY_MS = 1;
    private static final double SHARE_OF_BATCH = 0.1;
    private static final int LONGEST_DELAY_MS = 10;

    private int largestBatch;
    private boolean adapts;
    private boolean workerGathers;

    /** A batch was answered; the worker comes for the next one in a moment. */
    synchronized void answered(Model model, BatchReport batch) {
        Double requests = batch.numbers().get("requests");
        Double seconds = batch.numbers().get("handler_s");
        if (!adapts(model) || requests == null || seconds == null) {
            return;
        }
        workerGathers = batch.numbers().getOrDefault("overlaps", 0.0) > 0;
        if (workerGathers) {
            return;
        }
        int returning = (int) Math.round(requests) + model.getPendingRequestsInJobQueue();
        long share = requests > 1 ? Math.round(1000 * SHARE_OF_BATCH * seconds) : SMALLEST_DELAY_MS;
        model.setMaxBatchDelay((int) Math.min(LONGEST_DELAY_MS, Math.max(SMALLEST_DELAY_MS, share)));
        model.setBatchSize(Math.min(largestBatch, Math.max(1, returning)));
    }

    /** A call was queued: more of them than expected need not wait for a batch of their own. */
    synchronized void queued(Model model) {
        if (adapts(model)) {
            int waiting = Math.min(largestBatch, model.getPendingRequestsInJobQueue());
            if (waiting > model.getBatchSize()) {
                model.setBatchSize(waiting);
            }
        }
    }

    /** A worker took a call. */
    synchronized void taken(Model model) {
        if (workerGathers && adapts(model)) {
            model.setMaxBatchDelay(SMALLEST_DELAY_MS);
            model.setBatchSize(Math.min(largestBatch, Math.max(1, model.getPendingRequestsInJobQueue())));
        }
    }

    /** The model's own values are read once, before anything here changes them. */
    private boolean adapts(Model model) {
        if (largestBatch == 0) {
            largestBatch = model.getBatchSize();
            adapts = model.getMaxBatchDelay() <= SMALLEST_DELAY_MS && model.getMaxWorkers() == 1;
        }
        return adapts;
    }
}
