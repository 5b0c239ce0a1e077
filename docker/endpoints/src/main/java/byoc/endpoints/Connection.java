package byoc.endpoints;

import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.socket.DuplexChannel;
import io.netty.handler.codec.DecoderException;
import io.netty.handler.codec.http.DefaultHttpContent;
import io.netty.handler.codec.http.DefaultHttpResponse;
import io.netty.handler.codec.http.DefaultLastHttpContent;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpMethod;
import io.netty.handler.codec.http.HttpResponse;
import io.netty.handler.codec.http.HttpResponseStatus;
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
 * <p>All its state belongs to the channel's event loop; only {@link #send}, {@link #sendPiece} and
 * {@link #cut} may be called from elsewhere.
 */
final class Connection extends ChannelInboundHandlerAdapter {
    private static final Logger LOG = LoggerFactory.getLogger("byoc.frontend");

    /** Pipelined requests beyond this many stay in the kernel, and with them the memory of their bodies. */
    private static final int MAX_WAITING = 16;

    /** How long a closing connection swallows what the client still sends; see {@link #closeGently}. */
    private static final int LINGER_SECONDS = 2;

    private final Router router;
    private final Ledger ledger;
    private final PendingCalls pending;
    private final Queue<Exchange> waiting = new ArrayDeque<>();
    private ChannelHandlerContext context;
    private Exchange current;
    private Exchange streamed;
    private boolean ended;
    private boolean closing;
    private boolean failed;

    Connection(Router router, Ledger ledger, PendingCalls pending) {
        this.router = router;
        this.ledger = ledger;
        this.pending = pending;
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
        if (message == RequestDecoder.ENDED) {
            ended = true;
            startNext();
            return;
        }
        Exchange exchange = open(message);
        ledger.arrived(exchange);
        waiting.add(exchange);
        pending.hold(exchange.bodyBytes());
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
        if (request.decoderResult().isSuccess()) {
            Exchange exchange = new Exchange(this, request, HttpUtil.isKeepAlive(request));
            exchange.hold(request);
            return exchange;
        }
        Exchange exchange = new Exchange(this, request, false);
        exchange.refuse(Router.unreadable(request.decoderResult().cause()));
        request.release();
        return exchange;
    }

    private void startNext() {
        if (current != null || closing) {
            return;
        }
        current = next();
        if (waiting.size() <= MAX_WAITING / 2 && !context.channel().config().isAutoRead()) {
            context.channel().config().setAutoRead(true);
        }
        if (current != null) {
            router.route(current);
        } else if (ended) {
            closeGently();
        }
    }

    private Exchange next() {
        Exchange next = waiting.poll();
        if (next != null) {
            pending.giveBack(next.bodyBytes()); // from here on it is counted as a call
        }
        return next;
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
        boolean keepAlive = exchange.keepAlive() && HttpUtil.isKeepAlive(response);
        response.headers().setInt(HttpHeaderNames.CONTENT_LENGTH, response.content().readableBytes());
        frame(exchange, response, keepAlive);
        boolean bodyless = HttpMethod.HEAD.equals(exchange.method());
        exchange.writing(bodyless ? 0 : response.content().readableBytes());
        finish(exchange, bodyless ? headOf(response) : response, response.status().code(), keepAlive);
    }

    private static void frame(Exchange exchange, HttpResponse response, boolean keepAlive) {
        if (!keepAlive) {
            response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
        } else if (exchange.version().equals(HttpVersion.HTTP_1_0)) {
            response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.KEEP_ALIVE);
        }
        if (exchange.isInvocation()) {
            response.headers().set(Exchange.REQUEST_ID, exchange.id());
        }
    }

    private void finish(Exchange exchange, Object last, int status, boolean keepAlive) {
        context.writeAndFlush(last).addListener(written -> {
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
     * Writes a piece of the answer to the current exchange: chunks (RFC 9112, section 7.1), or for HTTP/1.0 all that
     * comes until the connection is closed. From any thread.
     */
    void sendPiece(Exchange exchange, FullHttpResponse piece, boolean last, boolean broken) {
        context.executor().execute(() -> writePiece(exchange, piece, last, broken));
    }

    private void writePiece(Exchange exchange, FullHttpResponse piece, boolean last, boolean broken) {
        boolean chunked = exchange.version().isKeepAliveDefault();
        if (streamed != exchange) {
            streamed = exchange;
            HttpResponse head = new DefaultHttpResponse(piece.protocolVersion(), piece.status(), piece.headers());
            if (chunked) {
                HttpUtil.setTransferEncodingChunked(head, true);
            }
            frame(exchange, head, exchange.keepAlive() && chunked);
            context.write(head);
        }
        exchange.writing(piece.content().readableBytes());
        if (last && !broken) {
            streamed = null;
            finish(exchange, new DefaultLastHttpContent(piece.content()), piece.status().code(), exchange.keepAlive() && chunked);
            return;
        }
        context.writeAndFlush(new DefaultHttpContent(piece.content()));
        if (broken) {
            end(exchange);
        }
    }

    /** Ends a connection in the middle of an answer: without its last chunk nobody takes that for whole. From any thread. */
    void cut(Exchange exchange) {
        context.executor().execute(() -> end(exchange));
    }

    private void end(Exchange exchange) {
        ledger.finished(exchange, HttpResponseStatus.INTERNAL_SERVER_ERROR.code());
        current = null;
        streamed = null;
        context.close();
    }

    private static FullHttpResponse headOf(FullHttpResponse response) {
        FullHttpResponse head = response.replace(Unpooled.EMPTY_BUFFER);
        response.release();
        return head;
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
            abandon(current);
        }
        for (Exchange exchange = next(); exchange != null; exchange = next()) {
            abandon(exchange);
        }
    }

    private void abandon(Exchange exchange) {
        if (exchange.abandon()) {
            ledger.finished(exchange, Ledger.CALLER_LEFT);
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext ignored, Throwable cause) {
        if (cause instanceof IOException || cause instanceof DecoderException || failed) {
            LOG.debug("A connection is closed: {}", cause.toString()); // a reset or nonsense from the client is no news
        } else {
            LOG.warn("A connection failed and is closed", cause);
        }
        failed = true;
        context.close();
    }

    boolean isOpen() {
        return context.channel().isActive();
    }
}
