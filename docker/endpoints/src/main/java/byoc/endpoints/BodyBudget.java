package byoc.endpoints;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.codec.DecoderResult;
import io.netty.handler.codec.http.DefaultLastHttpContent;
import io.netty.handler.codec.http.HttpContent;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.LastHttpContent;
import io.netty.util.ReferenceCountUtil;

/**
 * Counts the body that is being received among the bodies that wait for an answer. Without it, callers that send
 * slowly, or stop half-way, hold memory that nobody counts: the limit for one body bounds them only one by one.
 */
final class BodyBudget extends ChannelInboundHandlerAdapter {
    private final PendingCalls pending;
    private final int maxBytes;
    private boolean kept;
    private long held;
    private boolean refused;

    /** Bodies over {@code maxBytes} are not counted: {@link BodyLimit} throws them away as they come. */
    BodyBudget(PendingCalls pending, int maxBytes) {
        this.pending = pending;
        this.maxBytes = maxBytes;
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        if (refused) {
            ReferenceCountUtil.release(message);
            return;
        }
        if (message instanceof HttpRequest head) {
            kept = head.decoderResult().isSuccess() && HttpUtil.getContentLength(head, 0L) <= maxBytes;
        } else if (message instanceof LastHttpContent) {
            giveBack(); // from here on the connection counts it
        } else if (message instanceof HttpContent content && kept && !receive(content.content().readableBytes())) {
            content.release();
            refuse(context);
            return;
        }
        context.fireChannelRead(message);
    }

    private boolean receive(int size) {
        if (held + size > maxBytes) {
            kept = false;
            giveBack();
            return true;
        }
        boolean admitted = pending.receive(size, held);
        held += admitted ? size : 0;
        return admitted;
    }

    /** Ends the request with its refusal; no more is read on the connection but to throw it away. */
    private void refuse(ChannelHandlerContext context) {
        refused = true;
        giveBack();
        LastHttpContent end = new DefaultLastHttpContent();
        end.setDecoderResult(DecoderResult.failure(new Unreadable(pending.overBudget())));
        context.fireChannelRead(end);
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        giveBack();
        context.fireChannelInactive();
    }

    private void giveBack() {
        pending.giveBack(held);
        held = 0;
    }
}
