package credentials_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

var some = []*credentials.Token{
	{Identifier: []byte("id"), Password: []byte("secret"), Kind: credentials.AMRM},
	{Identifier: bytes.Repeat([]byte{7}, 128), Password: bytes.Repeat([]byte{8}, 70_000), Kind: credentials.NM, Service: "host:1"},
}

// Ensure both forms are read, and that what is written is.
func TestForms(t *testing.T) {
	t.Parallel()
	written := credentials.Encode(some)
	c := &yarnpb.Credentials{}
	for _, s := range some {
		alias := s.Service
		c.Tokens = append(c.Tokens, &yarnpb.CredentialsKV{Alias: &alias, Token: s.Proto()})
	}
	var b bytes.Buffer
	b.WriteString("HDTS\x01")
	if _, err := protodelim.MarshalTo(&b, c); err != nil {
		t.Fatal(err)
	}
	for form, file := range map[string][]byte{"writable": written, "protobuf": b.Bytes()} {
		got, err := credentials.Parse(file)
		if err != nil || !reflect.DeepEqual(got, some) {
			t.Errorf("%s: read %v: %v", form, got, err)
		}
		if n := credentials.Of(credentials.NM, got); n == nil || n.Service != "host:1" {
			t.Errorf("%s: the NodeManager's token is %v", form, n)
		}
		if _, err := credentials.Parse(file[:len(file)-50_000]); err == nil {
			t.Errorf("%s: no error for a part", form)
		}
	}
	if s := some[0].String(); strings.Contains(s, "secret") {
		t.Errorf("the secret is in %s", s)
	}
}

// Ensure no file is more than an error.
func FuzzParse(f *testing.F) {
	f.Add(credentials.Encode(some[:1]))
	f.Add([]byte("HDTS\x00\x01\x8f"))
	f.Add([]byte("HDTS\x01\x02\x0a\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tokens, err := credentials.Parse(b)
		if err != nil {
			return
		}
		if again, err := credentials.Parse(credentials.Encode(tokens)); err != nil || len(again) != len(tokens) {
			t.Errorf("%d tokens became %d: %v", len(tokens), len(again), err)
		}
	})
}
