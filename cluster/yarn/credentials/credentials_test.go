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

var some = &credentials.File{Tokens: []*credentials.Token{
	{Identifier: []byte("id"), Password: []byte("secret"), Kind: credentials.AMRM},
	{
		Identifier: bytes.Repeat([]byte{7}, 128), Password: bytes.Repeat([]byte{8}, 70_000), Kind: credentials.NM,
		Service: "host:1",
	},
}, Secrets: map[string][]byte{"one": []byte("secret 1"), "two": {}}}

// TestForms: both forms are read, and what Encode writes is.
func TestForms(t *testing.T) {
	t.Parallel()
	written := some.Encode()
	c := &yarnpb.Credentials{}
	for _, s := range some.Tokens {
		alias := s.Service
		c.Tokens = append(c.Tokens, &yarnpb.CredentialsKV{Alias: &alias, Token: &yarnpb.Token{
			Identifier: s.Identifier, Password: s.Password, Kind: &s.Kind, Service: &s.Service,
		}})
	}
	for name, secret := range some.Secrets {
		c.Secrets = append(c.Secrets, &yarnpb.CredentialsKV{Alias: &name, Secret: secret})
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
		if _, err := credentials.Parse(file[:len(file)-50_000]); err == nil {
			t.Errorf("%s: no error for a truncated file", form)
		}
	}
	if s := some.Tokens[0].String(); strings.Contains(s, "secret") {
		t.Errorf("the secret is in %s", s)
	}
}

// A file of any content is at most an error.
func FuzzParse(f *testing.F) {
	f.Add((&credentials.File{Tokens: some.Tokens[:1]}).Encode())
	f.Add([]byte("HDTS\x00\x01\x8f"))
	f.Add([]byte("HDTS\x01\x02\x0a\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := credentials.Parse(b)
		if err != nil {
			return
		}
		if again, err := credentials.Parse(file.Encode()); err != nil || len(again.Tokens) != len(file.Tokens) ||
			len(again.Secrets) != len(file.Secrets) {
			t.Errorf("%v became %v: %v", file, again, err)
		}
	})
}
