package byoc.endpoints;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPipeline;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.HttpMessage;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;

/**
 * Gathers the body of a request, up to the limit. Netty's own answer to a larger one is a bare 413 written past the
 * requests that are still waiting on the connection; here the oversized request is passed on without its body as
 * {@link Oversized}, to be refused when its turn comes. The rest of the body is read and thrown away meanwhile, so
 * that a client that writes before it reads gets to the answer.
 */
final class BodyLimit extends HttpObjectAggregator {
    BodyLimit(int maxBytes) {
        super(maxBytes);
    }

    /**
     * A request whose body is over the limit.
     *
     * @param head its request line and headers
     * @param keepAlive false when the client waits for leave to send the body: it may send it all the same, and
     *     only the end of the connection tells that body from a next request
     */
    record Oversized(HttpRequest head, boolean keepAlive) {}

    @Override
    protected Object newContinueResponse(HttpMessage start, int maxContentLength, ChannelPipeline pipeline) {
        if (start.decoderResult().isFailure() // its headers are kept, whatever is wrong with them
                || !HttpUtil.is100ContinueExpected(start)
                || isContentLengthInvalid(start, maxContentLength)) {
            return null;
        }
        return new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.CONTINUE);
    }

    @Override
    protected void handleOversizedMessage(ChannelHandlerContext context, HttpMessage oversized) {
        boolean bodyIsComing = !HttpUtil.is100ContinueExpected(oversized);
        context.fireChannelRead(
                new Oversized((HttpRequest) oversized, bodyIsComing && HttpUtil.isKeepAlive(oversized)));
    }
}
