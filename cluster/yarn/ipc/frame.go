package ipc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// maxFrame is more than any answer is long: Hadoop's own limit for a client is 128 MB.
const maxFrame = 128 << 20

// Call numbers that are not calls.
const (
	contextCall = -3
	saslCall    = -33
)

// encodeFrame makes what goes over the wire as one:
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
		return nil, fmt.Errorf("a request of %d bytes is too long", b.Len())
	}
	binary.BigEndian.PutUint32(b.Bytes(), uint32(b.Len()-4))
	return b.Bytes(), nil
}

// answer is a frame that a server sent: its header, and the message behind it.
type answer struct {
	header *yarnpb.RpcResponseHeader
	rest   []byte
}

// readFrame reads one answer, which may be a refusal.
func readFrame(r io.Reader) (answer, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return answer{}, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return answer{}, fmt.Errorf("the server sends %d bytes at once: is it a Hadoop IPC server?", n)
	}
	var b bytes.Buffer // grows with what comes, not with what is announced
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		return answer{}, fmt.Errorf("read an answer of %d bytes: %w", n, err)
	}
	header := &yarnpb.RpcResponseHeader{}
	if err := unmarshalFrom(&b, header); err != nil {
		return answer{}, fmt.Errorf("read the header of an answer: %w", err)
	}
	return answer{header, b.Bytes()}, nil
}

// unmarshalFrom reads one message with its length before it.
func unmarshalFrom(b *bytes.Buffer, m proto.Message) error {
	return protodelim.UnmarshalOptions{MaxSize: maxFrame}.UnmarshalFrom(b, m)
}

// message reads what is behind the header.
func (a answer) message(m proto.Message) error {
	return unmarshalFrom(bytes.NewBuffer(a.rest), m)
}

// refusal is the server's error, if it is one.
func (a answer) refusal() error {
	if a.header.GetStatus() == yarnpb.RpcResponseHeader_SUCCESS {
		return nil
	}
	return NewRemoteError(a.header.GetExceptionClassName(), a.header.GetErrorMsg())
}
