package byoc.endpoints;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.codec.http.HttpResponseStatus;
import java.util.concurrent.TimeUnit;

/**
 * Ends a request that does not come: each has a minute, and more as long as its bytes come at a kilobyte a second.
 * Otherwise whoever sends a byte now and then holds a connection, and the memory of a body, for ever. A connection on
 * which no request has begun may stay as long as it likes: the platform keeps some for later.
 */
final class SlowClients extends ChannelInboundHandlerAdapter {
    private static final int SLOWEST_BYTES_PER_SECOND = 1024;

    private final RequestDecoder decoder;
    private final int seconds;
    private long watched;
    private long begun;
    private long received;
    private boolean scheduled;

    /** Each request has so many seconds; 0 stands for no end. */
    SlowClients(RequestDecoder decoder, int seconds) {
        this.decoder = decoder;
        this.seconds = seconds;
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        received += message instanceof ByteBuf bytes ? bytes.readableBytes() : 0;
        context.fireChannelRead(message);
    }

    /** A request that came in one piece costs no more than this look at it. */
    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        context.fireChannelReadComplete();
        if (seconds > 0 && decoder.isAmidRequest() && decoder.requests() != watched) {
            watched = decoder.requests();
            begun = System.nanoTime();
            received = 0;
            if (!scheduled) {
                schedule(context, TimeUnit.SECONDS.toNanos(seconds));
            }
        }
    }

    private void schedule(ChannelHandlerContext context, long nanos) {
        scheduled = true;
        context.executor().schedule(() -> check(context), nanos, TimeUnit.NANOSECONDS);
    }

    private void check(ChannelHandlerContext context) {
        scheduled = false;
        if (!context.channel().isActive() || !decoder.isAmidRequest()) {
            return;
        }
        if (!context.channel().config().isAutoRead()) {
            begun = System.nanoTime(); // it is we who do not read
        }
        long allowed = TimeUnit.SECONDS.toNanos(seconds + received / SLOWEST_BYTES_PER_SECOND);
        long left = begun + allowed - System.nanoTime();
        if (left > 0) {
            schedule(context, left);
            return;
        }
        ChannelHandlerContext behindDecoder = context.pipeline().context(decoder);
        for (Object message : decoder.end(new Unreadable(HttpResponseStatus.REQUEST_TIMEOUT,
                "The request did not come whole within " + TimeUnit.NANOSECONDS.toSeconds(allowed)
                        + " s, which BYOC_CLIENT_TIMEOUT sets."))) {
            behindDecoder.fireChannelRead(message);
        }
    }
}
