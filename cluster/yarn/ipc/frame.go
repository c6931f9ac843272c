package ipc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// maxFrame bounds the size of a response. It is Hadoop's own limit for clients, 128 MB.
const maxFrame = 128 << 20

// Call numbers with special meanings.
const (
	contextCall = -3
	saslCall    = -33
)

// encodeFrame encodes a frame:
//
//	+-----------------+----------------------------+------------------------+
//	| length, 4 bytes | varint, RpcRequestHeader   | varint, message …      |
//	+-----------------+----------------------------+------------------------+
func encodeFrame(callID int32, clientID []byte, messages ...proto.Message) ([]byte, error) {
	header := &yarnpb.RpcRequestHeader{
		RpcKind: yarnpb.RpcKind_RPC_PROTOCOL_BUFFER.Enum(), RpcOp: yarnpb.RpcRequestHeader_RPC_FINAL_PACKET.Enum(),
		CallId: &callID, ClientId: clientID, RetryCount: proto.Int32(-1),
	}
	var b bytes.Buffer
	b.Write(make([]byte, 4))
	for _, m := range append([]proto.Message{header}, messages...) {
		if _, err := protodelim.MarshalTo(&b, m); err != nil {
			return nil, err
		}
	}
	if b.Len() > maxFrame {
		return nil, fmt.Errorf("a request of %d bytes is larger than a Hadoop server takes: pass less to the containers, "+
			"for example fewer --env", b.Len())
	}
	binary.BigEndian.PutUint32(b.Bytes(), uint32(b.Len()-4))
	return b.Bytes(), nil
}

// response is a frame from the server: the header, and the message after it.
type response struct {
	header *yarnpb.RpcResponseHeader
	rest   []byte
}

// readFrame reads one response, which may be an exception.
func readFrame(r io.Reader) (response, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return response{}, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if string(size[:]) == "HTTP" {
		return response{}, notHadoop("a web server answers there: the port is that of a page, not that for calls")
	}
	if n > maxFrame {
		return response{}, notHadoop("the server's answer is not Hadoop's (%d bytes at once)", n)
	}
	var b bytes.Buffer // grows with the received bytes, not with the announced size
	if got, err := io.CopyN(&b, r, int64(n)); err != nil {
		return response{}, cutShort(got, n, err)
	}
	header := &yarnpb.RpcResponseHeader{}
	if err := unmarshalFrom(&b, header); err != nil {
		return response{}, notHadoop("the server's answer is not Hadoop's (%w)", err)
	}
	return response{header, b.Bytes()}, nil
}

// cutShort returns the error of a response of which only the first bytes came.
func cutShort(got int64, of uint32, err error) error {
	if _, known := errors.AsType[*AnswerError](err); known { // of the frame within which this one is
		return err
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the connection was closed")
	}
	return &AnswerError{
		Err: fmt.Errorf("after %d of %d bytes of the answer: %w; check the network, and the server's log", got, of, err),
	}
}

// unmarshalFrom reads one message that is preceded by its length.
func unmarshalFrom(b *bytes.Buffer, m proto.Message) error {
	return protodelim.UnmarshalOptions{MaxSize: maxFrame}.UnmarshalFrom(b, m)
}

// decode decodes the message after the header.
func (a response) decode(m proto.Message) error {
	return unmarshalFrom(bytes.NewBuffer(a.rest), m)
}

// exception returns the server's exception as an error, or nil if the call succeeded.
func (a response) exception() error {
	if a.header.GetStatus() == yarnpb.RpcResponseHeader_SUCCESS {
		return nil
	}
	return NewRemoteError(a.header.GetExceptionClassName(), a.header.GetErrorMsg())
}
