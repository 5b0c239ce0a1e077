package byoc.endpoints;

import io.netty.channel.Channel;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPromise;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.pytorch.serve.util.messages.ModelInferenceRequest;
import org.pytorch.serve.util.messages.ModelWorkerResponse;
import org.pytorch.serve.util.messages.Predictions;
import org.pytorch.serve.util.messages.RequestInput;
import org.pytorch.serve.util.messages.WorkerCommands;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One worker's connection, and the calls that it owes an answer. TorchServe lets a worker answer a batch as a whole, and
 * sends it nothing meanwhile: cores idle while messages travel, and a short request waits for its longest neighbour. A
 * worker of this project marks answers as such, and they go straight to their callers from here; with an answer without
 * predictions it asks for its next batch, while it still owes those of the last.
 *
 * <p>TorchServe then believes the calls answered, so what becomes of them when the worker ends is decided here as well.
 * A worker with a foreign handler answers as TorchServe expects, and all of its messages pass through.
 */
public final class WorkerChannel extends ChannelDuplexHandler {
    /** The message that marks answers for their callers. */
    private static final String ANSWERS = "answers";

    /** In place of a request: its caller left. */
    private static final String CANCEL = "x-byoc-cancel";

    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");
    private static final int REAPED_SECONDS = 2;
    private static final int KILLED = 137;

    private final Map<String, Invocation> owed = new ConcurrentHashMap<>();
    private volatile boolean answersAhead;
    private volatile long pid = -1;
    private volatile Channel channel;
    private volatile String socket = "";
    private volatile boolean replaced;
    private boolean ended;

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        channel = context.channel();
        notePid(context);
    }

    private void notePid(ChannelHandlerContext context) {
        try {
            if (context.channel().isActive() && context.channel() instanceof EpollDomainSocketChannel peer) {
                pid = peer.peerCredentials().pid();
                socket = peer.remoteAddress().path();
            }
        } catch (java.io.IOException unknown) {
            LOG.debug("The process behind {} is not known", context.channel(), unknown);
        }
    }

    @Override
    public void channelActive(ChannelHandlerContext context) throws Exception {
        notePid(context);
        super.channelActive(context);
    }

    @Override
    public void write(ChannelHandlerContext context, Object message, ChannelPromise promise) throws Exception {
        if (message instanceof ModelInferenceRequest request) {
            if (answersAhead) { // a foreign handler may not know what to do without any request
                request.getRequestBatch().removeIf(input -> input instanceof CallInput known && !known.call().isOpen());
            }
            for (RequestInput input : request.getRequestBatch()) {
                if (input instanceof CallInput known && !ended) {
                    owed.put(input.getRequestId(), known.call());
                    known.call().sentTo(this);
                }
            }
        }
        super.write(context, message, promise);
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
        if (!(message instanceof ModelWorkerResponse response)) {
            super.channelRead(context, message);
        } else if (ANSWERS.equals(response.getMessage())) {
            response.getPredictions().forEach(this::deliver);
        } else {
            answersAhead |= response.getPredictions().isEmpty() && !owed.isEmpty();
            super.channelRead(context, message);
        }
    }

    private void deliver(Predictions answer) {
        Invocation call = owed.get(answer.getRequestId());
        if (call != null) { // its caller may have left, or its time run out
            call.response(
                    answer.getResp(),
                    answer.getContentType(),
                    answer.getStatusCode(),
                    answer.getReasonPhrase(),
                    answer.getHeaders());
        }
    }

    /** The call is answered, by whomever. */
    void settle(String id) {
        owed.remove(id);
    }

    /** Whether TorchServe no longer waits for what this worker owes, so that nobody but us looks at the clock. */
    boolean answersAhead() {
        return answersAhead;
    }

    /** Tells the worker that a caller left, so that it spares itself the work. */
    void cancel(String model, String id) {
        RequestInput left = new RequestInput(id);
        left.setHeaders(Map.of(CANCEL, "true"));
        ModelInferenceRequest message = new ModelInferenceRequest(model);
        message.setCommand(WorkerCommands.PREDICT);
        message.addRequest(left);
        channel.writeAndFlush(message);
    }

    /** Ends the worker's process, which TorchServe then replaces. */
    void endWorker() {
        replaced = true;
        LOG.error("The worker (process {}) did not answer within the response timeout; it is replaced", pid);
        ProcessHandle.of(pid).ifPresent(ProcessHandle::destroyForcibly);
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) throws Exception {
        ended = true; // TorchServe may yet send it a batch, and then says so itself
        super.channelInactive(context);
        List<Invocation> lost = List.copyOf(owed.values());
        owed.clear();
        if (lost.isEmpty()) {
            return;
        }
        WorkerDeath death = WorkerDeath.read(socket, replaced);
        Optional<Process> process = Workers.process(pid);
        if (process.isEmpty()) {
            tell(death, lost);
            return;
        }
        process.get().onExit().completeOnTimeout(null, REAPED_SECONDS, TimeUnit.SECONDS).thenAccept(gone ->
                tell(death.by(gone != null && gone.exitValue() == KILLED), lost));
    }

    private static void tell(WorkerDeath death, List<Invocation> lost) {
        try {
            lost.get(0).retries().afterDeath(death, lost);
        } catch (RuntimeException fault) { // nobody else would tell the callers
            LOG.error("The calls of a worker that ended cannot be run again", fault);
            lost.forEach(call -> call.workerEnded(death.killed()));
        }
    }
}
