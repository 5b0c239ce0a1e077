package byoc.endpoints;

import org.pytorch.serve.util.messages.RequestInput;

/** A request on its way to a worker that knows its call, so that whoever brings the answer need not look for it. */
final class CallInput extends RequestInput {
    private Invocation call;

    CallInput(String id) {
        super(id);
    }

    void belongTo(Invocation invocation) {
        call = invocation;
    }

    Invocation call() {
        return call;
    }
}
