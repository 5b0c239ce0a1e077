package byoc.endpoints;

import io.netty.handler.codec.http.FullHttpResponse;

/** Why a model was not loaded, as its caller is told. */
final class LoadRefused extends Exception {
    private static final long serialVersionUID = 1;

    private final ErrorType type;

    LoadRefused(ErrorType type, String sentence) {
        super(sentence);
        this.type = type;
    }

    FullHttpResponse response() {
        return type.response(getMessage());
    }
}
