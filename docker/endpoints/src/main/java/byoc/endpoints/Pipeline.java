package byoc.endpoints;

import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.handler.codec.http.HttpServerCodec;

/** What bytes go through on a client connection: HTTP, the limit of size, the order of answers. */
final class Pipeline extends ChannelInitializer<Channel> {
    private static final int MAX_REQUEST_LINE = 8 * 1024;
    private static final int MAX_HEADERS = 64 * 1024;
    private static final int MAX_CHUNK = 64 * 1024;

    private final Settings settings;
    private final Router router;
    private final Ledger ledger;

    Pipeline(Settings settings, Router router, Ledger ledger) {
        this.settings = settings;
        this.router = router;
        this.ledger = ledger;
    }

    @Override
    protected void initChannel(Channel channel) {
        channel.pipeline()
                .addLast(new HttpServerCodec(MAX_REQUEST_LINE, MAX_HEADERS, MAX_CHUNK))
                .addLast(new BodyLimit(settings.maxRequestBytes()))
                .addLast(new Connection(router, ledger));
    }
}
