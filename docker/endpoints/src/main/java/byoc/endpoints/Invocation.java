package byoc.endpoints;

import java.net.HttpURLConnection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.SortedSet;
import java.util.concurrent.TimeUnit;
import org.pytorch.serve.job.Job;
import org.pytorch.serve.util.messages.RequestInput;
import org.pytorch.serve.util.messages.WorkerCommands;
import org.pytorch.serve.wlm.Model;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One call as TorchServe's queue knows it. TorchServe's worker thread brings the answer here, and anything thrown at
 * it would end that thread and fail the rest of the batch; so every way out of this class is an answer.
 */
final class Invocation extends Job {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");

    /** The words with which TorchServe fails the batch of a worker that died, was killed or ran out of time. */
    private static final String WORKER_DIED = "Worker died.";

    private static final int INSUFFICIENT_STORAGE = 507;

    private final Exchange exchange;
    private final PendingCalls pending;
    private final Gathering gathering;
    private final Model model;
    private final int bodyBytes;
    private final int timeoutSeconds;
    private final Attempt attempt;
    private volatile boolean taken;
    private volatile boolean superseded;
    private volatile long queuedAt;
    private volatile WorkerChannel worker;
    private volatile long lastSign;

    Invocation(
            Model model,
            CallInput input,
            int bodyBytes,
            Exchange exchange,
            PendingCalls pending,
            Gathering gathering) {
        this(model, input, bodyBytes, exchange, pending, gathering, Attempt.FIRST);
    }

    private Invocation(
            Model model,
            CallInput input,
            int bodyBytes,
            Exchange exchange,
            PendingCalls pending,
            Gathering gathering,
            Attempt attempt) {
        super(model.getModelName(), null, WorkerCommands.PREDICT, input);
        input.belongTo(this);
        this.exchange = exchange;
        this.pending = pending;
        this.gathering = gathering;
        this.model = model;
        this.bodyBytes = bodyBytes;
        this.timeoutSeconds = model.getResponseTimeout();
        this.attempt = attempt;
        this.queuedAt = getBegin();
    }

    /** The same call once more; from here on this try of it does nothing. */
    Invocation next(boolean alone, SortedSet<Integer> refused) {
        CallInput input = new CallInput(Exchange.freshId());
        Map<String, String> headers = new LinkedHashMap<>(getPayload().getHeaders());
        long firstTaken = attempt.firstTaken() == 0 && taken ? getScheduled() : attempt.firstTaken();
        Attempt following = new Attempt(attempt.deaths() + 1, order(), firstTaken, alone, refused);
        following.tell(headers);
        input.setHeaders(headers);
        getPayload().getParameters().forEach(input::addParameter);
        Invocation next = new Invocation(model, input, bodyBytes, exchange, pending, gathering, following);
        superseded = true;
        pending.replace(this, next);
        exchange.onAbandoned(next::abandon);
        if (!exchange.isUnanswered()) { // its caller left meanwhile
            next.abandon();
        }
        return next;
    }

    /** Puts the call before all that wait for a worker. */
    void enqueueFirst() {
        if (!exchange.isUnanswered()) {
            abandon();
            return;
        }
        queuedAt = System.nanoTime();
        try {
            model.addFirst(this);
            gathering.queued(model);
        } catch (IllegalStateException full) {
            fail(ErrorType.WORKER_LOST, "The worker ended before it answered, and meanwhile the queue is full. Send it again.");
        }
    }

    /** Whether a worker is there to take it. */
    boolean canRun() {
        return Workers.anyLoaded(model);
    }

    Attempt attempt() {
        return attempt;
    }

    /** The id of this try, by which the worker knows it. */
    String id() {
        return getPayload().getRequestId();
    }

    /** The id by which the caller knows the call. */
    String callerId() {
        return exchange.id();
    }

    Retries retries() {
        return pending.retries();
    }

    /** When the call came, whatever the try. */
    long order() {
        return attempt.isFirst() ? getBegin() : attempt.began();
    }

    /** When this try of it entered the queue. */
    long queuedAt() {
        return queuedAt;
    }

    /** Whether no part of the answer has left and the caller still waits for it. */
    boolean isUnanswered() {
        return exchange.isUnanswered();
    }

    /** Whether the time that its first worker had is over for a call that is run again. */
    boolean isOutOfTime(long now) {
        return attempt.firstTaken() != 0 && now - attempt.firstTaken() > TimeUnit.SECONDS.toNanos(timeoutSeconds);
    }

    String hash() {
        return RefusedBodies.hash(
                model.getModelName(), getPayload().getHeaders(), getPayload().getParameters().get(0).getValue());
    }

    /** A worker has taken the call from the queue. */
    @Override
    public void setScheduled() {
        super.setScheduled();
        taken = true;
        pending.taken(this);
        gathering.taken(model);
    }

    /** A worker has it. */
    void sentTo(WorkerChannel channel) {
        worker = channel;
    }

    /** When the worker was last heard of: when it took the call, or sent a piece of the answer. */
    long lastSign() {
        return lastSign == 0 ? getScheduled() : lastSign;
    }

    /** Whether its worker alone still knows of the call, TorchServe having been told to go on. */
    boolean isLeftToWorker() {
        return worker != null && worker.answersAhead();
    }

    boolean isTaken() {
        return taken;
    }

    int bodyBytes() {
        return bodyBytes;
    }

    int timeoutSeconds() {
        return timeoutSeconds;
    }

    @Override
    public void response(
            byte[] body, CharSequence contentType, int status, String phrase, Map<String, String> headers) {
        if (superseded) {
            return;
        }
        try {
            lastSign = System.nanoTime();
            WorkerReply reply = new WorkerReply(body, contentType, status, phrase, headers);
            if (reply.isPart()) {
                part(reply);
                return;
            }
            finish(reply);
            exchange.answer(reply.response());
        } catch (Throwable fault) { // whatever it is, TorchServe's worker thread must not see it
            LOG.warn("The handler's answer to request {} cannot be sent: {}", exchange.id(), fault.toString());
            fail(ErrorType.MODEL_ERROR, "The model's answer cannot be sent over HTTP.");
        }
    }

    /** A piece of an answer that the caller gets as it comes; the first one brings status and headers. */
    private void part(WorkerReply reply) {
        if (reply.isLast()) {
            finish(reply);
        }
        exchange.stream(reply.response(), reply.isLast(), reply.isBroken());
    }

    private void finish(WorkerReply reply) {
        settle();
        exchange.setWaited(new Exchange.Waited(getBegin(), getScheduled()));
        exchange.metrics().queued((getScheduled() - getBegin()) / 1e9);
        reply.report(exchange);
        reply.batch().ifPresent(batch -> gathering.answered(model, batch));
    }

    @Override
    public void sendError(int status, String message) {
        if (superseded) {
            return;
        }
        try {
            boolean memory = status == HttpURLConnection.HTTP_ENTITY_TOO_LARGE || status == INSUFFICIENT_STORAGE;
            if (!WORKER_DIED.equals(message)) {
                failedBatch(memory);
            } else if (secondsSinceTaken() >= timeoutSeconds) {
                timedOut();
            } else if (worker == null) {
                retries().afterLoss(this); // with a worker, its channel knows better what it had begun
            }
        } catch (Throwable fault) { // as in response
            LOG.warn("Request {} cannot be failed: {}", exchange.id(), fault.toString());
        }
    }

    private void failedBatch(boolean memory) {
        if (memory) {
            fail(ErrorType.OVERLOADED, "There was not enough memory for the batch of this request; "
                    + "send it again, with fewer or shorter records.");
        } else {
            fail(ErrorType.MODEL_ERROR, "The model failed; the container's log says why.");
        }
    }

    /** The worker is gone, killed from outside or by its own end, and the call is not run again. */
    void workerEnded(boolean killed) {
        if (secondsSinceTaken() >= timeoutSeconds || isOutOfTime(System.nanoTime())) {
            timedOut();
        } else if (killed) {
            fail(ErrorType.WORKER_LOST, "The worker was killed, most likely for want of memory; it is restarted. "
                    + "Send it again, with fewer or shorter records.");
        } else {
            fail(ErrorType.WORKER_LOST, "The worker ended before it answered; it is restarted. Send it again.");
        }
    }

    /** Two workers ended over it. */
    void poisonous() {
        fail(ErrorType.POISON_INPUT, ErrorType.POISON_SENTENCE);
    }

    /** Its time was over before another worker had answered it. */
    void outOfTime() {
        WorkerChannel channel = worker;
        timedOut();
        cancelAt(channel);
    }

    /** The worker had the call for too long, and whatever it does then is not worth waiting for. */
    void overdue() {
        WorkerChannel late = worker;
        timedOut();
        if (late != null && late.answersAhead()) {
            late.endWorker();
        }
    }

    private void timedOut() {
        fail(ErrorType.TIMEOUT, "The model did not answer within the " + timeoutSeconds
                + " seconds of its response timeout.");
    }

    /** TorchServe no longer has the call, though no worker ever got it: it went with one that waited for its batch. */
    void overtaken() {
        retries().afterLoss(this);
    }

    /** No worker takes calls any more, though one is there. */
    void lost() {
        fail(ErrorType.WORKER_LOST, "The worker ended before it read this request. Send it again.");
    }

    /** The server stops and no longer waits for the model. */
    void stopped() {
        fail(ErrorType.STOPPING, "The server stopped before the model answered. Send it again.");
    }

    private void fail(ErrorType type, String message) {
        settle();
        exchange.setWaited(new Exchange.Waited(getBegin(), taken ? getScheduled() : 0));
        exchange.fail(type.response(message));
    }

    private void settle() {
        pending.remove(this);
        if (!attempt.isFirst()) {
            retries().settled(this);
        }
        WorkerChannel channel = worker;
        if (channel != null) {
            channel.settle(getPayload().getRequestId());
        }
    }

    private double secondsSinceTaken() {
        return !taken ? 0 : (System.nanoTime() - getScheduled()) / (double) TimeUnit.SECONDS.toNanos(1);
    }

    /** The caller left: a queued job past its expiry is dropped when a worker comes upon it. */
    void abandon() {
        WorkerChannel channel = worker;
        settle();
        getPayload().setClientExpireTS(1);
        cancelAt(channel);
    }

    private void cancelAt(WorkerChannel channel) {
        if (channel != null && channel.answersAhead()) {
            channel.cancel(model.getModelName(), id());
        }
    }

    @Override
    public boolean isOpen() {
        return !superseded && exchange.isOpen();
    }
}
