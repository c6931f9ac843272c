package ipc

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// responseFrame encodes a server's response.
func responseFrame(t testing.TB, header *yarnpb.RpcResponseHeader, messages ...proto.Message) []byte {
	t.Helper()
	var b bytes.Buffer
	b.Write(make([]byte, 4))
	for _, m := range append([]proto.Message{header}, messages...) {
		if _, err := protodelim.MarshalTo(&b, m); err != nil {
			t.Fatal(err)
		}
	}
	frame := b.Bytes()
	frame[2], frame[3] = byte((len(frame)-4)>>8), byte(len(frame)-4)
	return frame
}

// TestReadFrame: a response is read with its message, and an exception as an error.
func TestReadFrame(t *testing.T) {
	t.Parallel()
	ok := responseFrame(t,
		&yarnpb.RpcResponseHeader{CallId: proto.Uint32(7), Status: yarnpb.RpcResponseHeader_SUCCESS.Enum()},
		&yarnpb.KillApplicationResponse{IsKillCompleted: new(true)})
	a, err := readFrame(bytes.NewReader(ok))
	var m yarnpb.KillApplicationResponse
	if err != nil || a.header.GetCallId() != 7 || a.exception() != nil || a.decode(&m) != nil || !m.GetIsKillCompleted() {
		t.Errorf("read %v %v: %v", a.header, &m, err)
	}
	refused := responseFrame(t, &yarnpb.RpcResponseHeader{
		CallId: proto.Uint32(8), Status: yarnpb.RpcResponseHeader_ERROR.Enum(),
		ExceptionClassName: new("org.apache.hadoop.security.token.SecretManager$InvalidToken"),
		ErrorMsg:           new("org.apache.hadoop.security.token.SecretManager$InvalidToken: it has expired\n\tat java"),
	})
	a, err = readFrame(bytes.NewReader(refused))
	if err != nil {
		t.Fatal(err)
	}
	e, isRemote := errors.AsType[*RemoteError](a.exception())
	if !isRemote || e.Error() != "InvalidToken: it has expired" || e.Stack != "\tat java" ||
		!IsException(e, "A", "InvalidToken") {
		t.Errorf("the exception is %v", a.exception())
	}
	for i := range ok {
		if _, err := readFrame(bytes.NewReader(ok[:i])); err == nil {
			if a, _ := readFrame(bytes.NewReader(ok[:i])); a.decode(&m) == nil {
				t.Errorf("%d of %d bytes are read as a response", i, len(ok))
			}
		}
	}
	if _, err := readFrame(bytes.NewReader([]byte("HTTP/1.1 400 Bad Request"))); err == nil {
		t.Error("HTTP is read as a response")
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(responseFrame(f,
		&yarnpb.RpcResponseHeader{CallId: proto.Uint32(7), Status: yarnpb.RpcResponseHeader_SUCCESS.Enum()},
		&yarnpb.RpcSasl{State: yarnpb.RpcSasl_NEGOTIATE.Enum()}))
	f.Add([]byte{0, 0, 0, 2, 1, 8})
	f.Fuzz(func(_ *testing.T, b []byte) {
		a, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		_ = a.exception()
		_ = a.decode(&yarnpb.RpcSasl{})
		_ = a.decode(&yarnpb.AllocateResponse{})
	})
}
