package byoc.endpoints;

import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.socket.DuplexChannel;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.util.ReferenceCountUtil;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One client connection: its exchanges, answered one at a time and in the order they came, its framing headers, and
 * its end. It keeps reading while an answer is owed, because that is the only way to notice that the caller left.
 *
 * <p>All its state belongs to the channel's event loop; only {@link #send} may be called from elsewhere.
 */
final class Connection extends ChannelInboundHandlerAdapter {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");

    /** Pipelined requests beyond this many stay in the kernel, and with them the memory of their bodies. */
    private static final int MAX_WAITING = 16;

    /** How long a closing connection swallows what the client still sends; see {@link #closeGently}. */
    private static final int LINGER_SECONDS = 2;

    private final Router router;
    private final Ledger ledger;
    private final Queue<Exchange> waiting = new ArrayDeque<>();
    private ChannelHandlerContext context;
    private Exchange current;
    private boolean closing;

    Connection(Router router, Ledger ledger) {
        this.router = router;
        this.ledger = ledger;
    }

    @Override
    public void handlerAdded(ChannelHandlerContext added) {
        context = added;
    }

    @Override
    public void channelRead(ChannelHandlerContext ignored, Object message) {
        if (closing) {
            ReferenceCountUtil.release(message);
            return;
        }
        Exchange exchange = open(message);
        ledger.arrived(exchange);
        waiting.add(exchange);
        if (waiting.size() > MAX_WAITING) {
            context.channel().config().setAutoRead(false);
        }
        startNext();
    }

    private Exchange open(Object message) {
        if (message instanceof BodyLimit.Oversized oversized) {
            Exchange exchange = new Exchange(this, oversized.head(), oversized.keepAlive());
            exchange.refuse(router.tooLarge());
            return exchange;
        }
        FullHttpRequest request = (FullHttpRequest) message;
        if (request.decoderResult().isSuccess() && hasReadableLength(request)) {
            Exchange exchange = new Exchange(this, request, HttpUtil.isKeepAlive(request));
            exchange.hold(request);
            return exchange;
        }
        Exchange exchange = new Exchange(this, request, false);
        exchange.refuse(Router.unreadable(request.decoderResult().cause()));
        request.release();
        return exchange;
    }

    /** Netty takes a negative length for none, and would read the body as the next request. */
    private static boolean hasReadableLength(FullHttpRequest request) {
        return request.headers().getAll(HttpHeaderNames.CONTENT_LENGTH).stream()
                .allMatch(length -> length.chars().allMatch(character -> character >= '0' && character <= '9'));
    }

    private void startNext() {
        if (current != null || closing) {
            return;
        }
        current = waiting.poll();
        if (waiting.size() <= MAX_WAITING / 2 && !context.channel().config().isAutoRead()) {
            context.channel().config().setAutoRead(true);
        }
        if (current != null) {
            router.route(current);
        }
    }

    /** Writes the answer to the current exchange; from any thread. */
    void send(Exchange exchange, FullHttpResponse response) {
        if (context.executor().inEventLoop()) {
            write(exchange, response);
        } else {
            context.executor().execute(() -> write(exchange, response));
        }
    }

    private void write(Exchange exchange, FullHttpResponse response) {
        int status = response.status().code();
        boolean keepAlive = exchange.keepAlive() && HttpUtil.isKeepAlive(response);
        response.headers().setInt(HttpHeaderNames.CONTENT_LENGTH, response.content().readableBytes());
        if (!keepAlive) {
            response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
        } else if (exchange.version().equals(HttpVersion.HTTP_1_0)) {
            response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.KEEP_ALIVE);
        }
        if (exchange.isInvocation()) {
            response.headers().set(Exchange.REQUEST_ID, exchange.id());
        }
        context.writeAndFlush(response).addListener(written -> {
            ledger.finished(exchange, written.isSuccess() ? status : Ledger.CALLER_LEFT);
            current = null;
            if (keepAlive && written.isSuccess()) {
                startNext();
            } else {
                closeGently();
            }
        });
    }

    /**
     * Ends our half, then waits for the client to end its own. Closing a socket that has unread bytes resets it, and
     * a reset may take the answer from a client that was still sending when it was written (RFC 9112, section 9.6).
     */
    private void closeGently() {
        closing = true;
        abandonAll();
        context.channel().config().setAutoRead(true);
        if (context.channel() instanceof DuplexChannel channel && channel.isActive()) {
            channel.shutdownOutput();
            channel.eventLoop().schedule(() -> channel.close(), LINGER_SECONDS, TimeUnit.SECONDS);
        } else {
            context.close();
        }
    }

    @Override
    public void channelInactive(ChannelHandlerContext ignored) {
        closing = true;
        abandonAll();
    }

    private void abandonAll() {
        if (current != null) {
            waiting.add(current);
        }
        for (Exchange exchange = waiting.poll(); exchange != null; exchange = waiting.poll()) {
            if (exchange.abandon()) {
                ledger.finished(exchange, Ledger.CALLER_LEFT);
            }
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext ignored, Throwable cause) {
        if (!(cause instanceof IOException)) { // a reset by the client is no news
            LOG.warn("A connection failed and is closed", cause);
        }
        context.channel().close().addListener(ChannelFutureListener.CLOSE);
    }

    boolean isOpen() {
        return context.channel().isActive();
    }
}
