package org.pytorch.serve.util.codec;

import byoc.endpoints.WorkerChannel;
import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import io.netty.handler.codec.CorruptedFrameException;
import io.netty.handler.codec.TooLongFrameException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.pytorch.serve.util.messages.ModelWorkerResponse;
import org.pytorch.serve.util.messages.Predictions;

/**
 * Reads what a worker answers, in place of TorchServe's class of this name, which starts again from the first answer
 * at every read of the socket: a batch of large answers costs it the square of their sizes, and the worker is taken
 * for dead meanwhile.
 *
 * <p>Here each field is an array of known size that is filled as bytes arrive, whatever the reads. Every byte is
 * copied once, and nothing is left over for the superclass to gather.
 */
public class ModelResponseDecoder extends ByteToMessageDecoder {
    /** TorchServe's own limit for a name or value of a header. */
    private static final int MAX_HEADER_FIELD = 6_500_000;

    /** In place of the next answer's length of id: there are no more. */
    private static final int END = -1;

    /** The fields in the order of the wire. A text is its length and then its bytes. */
    private enum Field {
        CODE, MESSAGE_LENGTH, MESSAGE, ID_LENGTH, ID, TYPE_LENGTH, TYPE, STATUS, PHRASE_LENGTH, PHRASE,
        HEADER_COUNT, NAME_LENGTH, NAME, VALUE_LENGTH, VALUE, BODY_LENGTH, BODY
    }

    private final int maxLength;
    private Field field;
    private byte[] bytes;
    private int filled;
    private boolean broken;
    private ModelWorkerResponse response;
    private Answer answer;
    private Map<String, String> headers;
    private int headersLeft;
    private String name;

    /**
     * Reads answers whose every text and body is at most so long.
     *
     * @param maxLength the limit in bytes
     */
    public ModelResponseDecoder(int maxLength) {
        this.maxLength = maxLength;
        expectNumber(Field.CODE);
    }

    /** Behind the decoder comes who may answer callers by himself. */
    @Override
    public void handlerAdded(ChannelHandlerContext context) throws Exception {
        super.handlerAdded(context);
        context.pipeline().addLast(new WorkerChannel());
    }

    /** An answer that keeps the array it is given, where TorchServe's class copies it. */
    private static final class Answer extends Predictions {
        private byte[] body;

        @Override
        public byte[] getResp() {
            return body;
        }

        @Override
        public void setResp(byte[] read) {
            body = read;
        }
    }

    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf in, List<Object> out) {
        if (broken) {
            in.skipBytes(in.readableBytes());
            return;
        }
        boolean understood = false;
        try {
            while (in.isReadable()) {
                int piece = Math.min(in.readableBytes(), bytes.length - filled);
                in.readBytes(bytes, filled, piece);
                filled += piece;
                while (filled == bytes.length) { // more than once where texts are empty
                    finishField(out);
                }
            }
            understood = true;
        } finally {
            broken = !understood; // where the next answer begins is lost
        }
    }

    private void finishField(List<Object> out) {
        switch (field) {
            case CODE -> {
                response = new ModelWorkerResponse();
                response.setPredictions(new ArrayList<>());
                response.setCode(number());
                expectNumber(Field.MESSAGE_LENGTH);
            }
            case MESSAGE_LENGTH -> expectBytes(Field.MESSAGE, maxLength);
            case MESSAGE -> {
                response.setMessage(text());
                expectNumber(Field.ID_LENGTH);
            }
            case ID_LENGTH -> {
                if (number() == END) {
                    out.add(response);
                    response = null;
                    expectNumber(Field.CODE);
                } else {
                    answer = new Answer();
                    expectBytes(Field.ID, maxLength);
                }
            }
            case ID -> {
                answer.setRequestId(text());
                expectNumber(Field.TYPE_LENGTH);
            }
            case TYPE_LENGTH -> expectBytes(Field.TYPE, maxLength);
            case TYPE -> {
                answer.setContentType(text());
                expectNumber(Field.STATUS);
            }
            case STATUS -> {
                answer.setStatusCode(number());
                expectNumber(Field.PHRASE_LENGTH);
            }
            case PHRASE_LENGTH -> expectBytes(Field.PHRASE, maxLength);
            case PHRASE -> {
                answer.setReasonPhrase(text());
                expectNumber(Field.HEADER_COUNT);
            }
            case HEADER_COUNT -> {
                headers = new HashMap<>();
                answer.setHeaders(headers);
                headersLeft = length(maxLength);
                expectHeaderOrBody();
            }
            case NAME_LENGTH -> expectBytes(Field.NAME, MAX_HEADER_FIELD);
            case NAME -> {
                name = text();
                expectNumber(Field.VALUE_LENGTH);
            }
            case VALUE_LENGTH -> expectBytes(Field.VALUE, MAX_HEADER_FIELD);
            case VALUE -> {
                headers.put(name, text());
                headersLeft--;
                expectHeaderOrBody();
            }
            case BODY_LENGTH -> expectBytes(Field.BODY, maxLength);
            case BODY -> {
                answer.setResp(bytes);
                response.appendPredictions(answer);
                expectNumber(Field.ID_LENGTH);
            }
        }
    }

    private void expectHeaderOrBody() {
        expectNumber(headersLeft > 0 ? Field.NAME_LENGTH : Field.BODY_LENGTH);
    }

    private void expectNumber(Field next) {
        field = next;
        bytes = new byte[Integer.BYTES];
        filled = 0;
    }

    /** The field just read is the length of the next one. */
    private void expectBytes(Field next, int limit) {
        bytes = new byte[length(limit)];
        field = next;
        filled = 0;
    }

    private int length(int limit) {
        int length = number();
        if (length > limit) {
            throw new TooLongFrameException("The worker's answer has a part of " + length + " bytes, over the limit of "
                    + limit + "; max_response_size sets the limit of a body.");
        }
        if (length < 0) {
            throw new CorruptedFrameException("The worker's answer has a part of " + length + " bytes.");
        }
        return length;
    }

    private int number() {
        return ByteBuffer.wrap(bytes).getInt();
    }

    private String text() {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
