package ipc

import (
	"bytes"
	"strings"
	"testing"
)

// TestDigestExample: the example of RFC 2831 has the right response.
func TestDigestExample(t *testing.T) {
	t.Parallel()
	d := &digest{user: "chris", password: "secret", uri: "imap/elwood.innosoft.com", cnonce: "OA6MHXh6VqTrRk"}
	got, err := d.respond(`realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8`,
		nil)
	if err != nil || !strings.Contains(got, "response=d388dad90d4bbd760a152321f2143af7") {
		t.Errorf("%s: %v", got, err)
	}
	if err := d.verify("rspauth=ea40f60335c427b5527b84dbabcdfffd"); err != nil {
		t.Error(err)
	}
	if err := d.verify("rspauth=00000000000000000000000000000000"); err == nil {
		t.Error("a server that does not know the password is accepted")
	}
}

// TestChoice: the best common quality of protection is chosen; if there is none, respond returns an error.
func TestChoice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ challenge, wanted, want, err string }{
		{`nonce="n",qop="auth-conf,auth-int,auth",cipher="3des,rc4"`, "", "auth", ""},
		{`nonce="n",qop="auth-conf,auth-int"`, "", "auth-int", ""},
		{`nonce="n",qop="auth-conf,auth-int,auth",cipher="3des,rc4"`, "auth-conf,auth", "auth-conf", ""},
		{`nonce="n"`, "auth", "auth", ""},
		{`nonce="n",qop="auth"`, "auth-conf", "", "hadoop.rpc.protection"},
		{`nonce="n",qop="auth-conf",cipher="3des"`, "", "", "rc4"},
		{`qop="auth"`, "", "", "not DIGEST-MD5"},
		{`nonce="n",algorithm=sha`, "", "", "not DIGEST-MD5"},
		{`nonce="n`, "", "", "no end"},
		{`nonce`, "", "", "no value"},
	} {
		d := newDigest("u", "p", "a/b")
		_, err := d.respond(tt.challenge, splitList(tt.wanted))
		if (tt.err == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %v", tt.challenge, err)
		}
		if err == nil && d.qop != tt.want {
			t.Errorf("%s: %s, want %s", tt.challenge, d.qop, tt.want)
		}
	}
}

// pair returns the security layers of both sides after an authentication.
func pair(t testing.TB, qop string) (ours, theirs [2]*securityLayer) {
	t.Helper()
	d := newDigest("u", "p", "a/b")
	if _, err := d.respond(`realm="default",nonce="n",qop="auth-int,auth-conf",cipher="rc4"`, []string{qop}); err != nil {
		t.Fatal(err)
	}
	for i, to := range []*[2]*securityLayer{&ours, &theirs} {
		out, in, err := d.securityLayers()
		if err != nil {
			t.Fatal(err)
		}
		*to = [2]*securityLayer{out, in}
		if i == 1 { // the other side sends what we receive
			*to = [2]*securityLayer{in, out}
		}
	}
	return ours, theirs
}

// TestLayers: protected messages are received unchanged, once and in order.
func TestLayers(t *testing.T) {
	t.Parallel()
	for _, qop := range []string{qopInt, qopConf} {
		ours, theirs := pair(t, qop)
		for _, text := range []string{"", "one", strings.Repeat("two", 5000)} {
			wrapped := ours[0].wrap([]byte(text))
			if got, err := theirs[1].unwrap(wrapped); err != nil || string(got) != text {
				t.Errorf("%s: %.20q became %.20q: %v", qop, text, got, err)
			}
			if _, err := theirs[1].unwrap(wrapped); err == nil {
				t.Errorf("%s: the same message is accepted twice", qop)
			}
		}
		ours, theirs = pair(t, qop)
		changed := ours[0].wrap([]byte("message"))
		if qop == qopConf && bytes.Contains(changed, []byte("message")) {
			t.Error("the encrypted message is readable")
		}
		changed[0] ^= 1
		if _, err := theirs[1].unwrap(changed); err == nil {
			t.Errorf("%s: a changed message is accepted", qop)
		}
	}
}

func FuzzDirectives(f *testing.F) {
	f.Add(`realm="default",nonce="a\"b",qop="auth-conf,auth",charset=utf-8,cipher="rc4",algorithm=md5-sess`)
	f.Add(`a="`)
	f.Add(`,,=,\`)
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := parseDirectives(s); err == nil {
			_, _ = newDigest("u", "p", "a/b").respond(s, nil)
		}
	})
}

func FuzzUnwrap(f *testing.F) {
	ours, _ := pair(f, qopConf)
	f.Add(ours[0].wrap([]byte("message")))
	f.Add([]byte{0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, qop := range []string{qopInt, qopConf} {
			_, theirs := pair(t, qop)
			if m, err := theirs[1].unwrap(b); err == nil && len(m) != len(b)-trailerSize {
				t.Errorf("%d bytes of %d", len(m), len(b))
			}
		}
	})
}
