package byoc.endpoints;

import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.handler.codec.http.HttpResponseEncoder;

/** What bytes go through on a client connection: HTTP, the limits of size, the order of answers. */
final class Pipeline extends ChannelInitializer<Channel> {
    private final Settings settings;
    private final PendingCalls pending;
    private final Router router;
    private final Ledger ledger;

    Pipeline(Settings settings, PendingCalls pending, Router router, Ledger ledger) {
        this.settings = settings;
        this.pending = pending;
        this.router = router;
        this.ledger = ledger;
    }

    @Override
    protected void initChannel(Channel channel) {
        RequestDecoder decoder = new RequestDecoder();
        channel.pipeline()
                .addLast(new SlowClients(decoder, settings.clientTimeoutSeconds()))
                .addLast(decoder)
                .addLast(new HttpResponseEncoder())
                .addLast(new BodyBudget(pending, settings.maxRequestBytes()))
                .addLast(new BodyLimit(settings.maxRequestBytes()))
                .addLast(new Connection(router, ledger, pending));
    }
}
