package ipc

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Qualities of protection of SASL, from the least.
const (
	qopAuth = "auth"      // who speaks is proven once
	qopInt  = "auth-int"  // each message is signed
	qopConf = "auth-conf" // each message is encrypted
)

// digest is one authentication by DIGEST-MD5 (RFC 2831).
type digest struct {
	user, password string
	uri            string // protocol/server
	cnonce         string

	realm, nonce, qop, cipher string // of the challenge, and chosen from it
}

// newDigest is an authentication by what a token holds, in base64.
func newDigest(user, password, uri string) *digest {
	return &digest{user: user, password: password, uri: uri, cnonce: rand.Text()}
}

// respond answers a challenge with the first of the wanted qualities that the server
// offers, or with the least it offers where none is wanted.
func (d *digest) respond(challenge string, wanted []string) (string, error) {
	c, err := parseDirectives(challenge)
	if err != nil {
		return "", fmt.Errorf("read the server's challenge: %w", err)
	}
	if c["nonce"] == "" || (c["algorithm"] != "" && c["algorithm"] != "md5-sess") {
		return "", errors.New("the server's challenge is not DIGEST-MD5's")
	}
	d.realm, d.nonce = c["realm"], c["nonce"]
	if d.qop, err = choose(wanted, c["qop"]); err != nil {
		return "", err
	}
	response := fmt.Sprintf(`charset=utf-8,username="%s",realm="%s",nonce="%s",nc=00000001,cnonce="%s",digest-uri="%s",maxbuf=65536,response=%s,qop=%s`,
		quote(d.user), quote(d.realm), quote(d.nonce), d.cnonce, quote(d.uri), d.proof("AUTHENTICATE:"), d.qop)
	if d.qop == qopConf {
		// Encryption by a stream cipher: the others of Java's need no less trust in MD5.
		if d.cipher = "rc4"; !slices.Contains(list(c["cipher"]), d.cipher) {
			return "", fmt.Errorf("the server encrypts by %s, not by rc4: set hadoop.rpc.protection to integrity, or allow rc4", c["cipher"])
		}
		response += `,cipher="` + d.cipher + `"`
	}
	return response, nil
}

// choose picks the quality of protection.
func choose(wanted []string, offer string) (string, error) {
	offered := list(offer)
	if len(offered) == 0 {
		offered = []string{qopAuth}
	}
	if len(wanted) == 0 {
		wanted = []string{qopAuth, qopInt, qopConf}
	}
	for _, w := range wanted {
		if slices.Contains(offered, w) {
			return w, nil
		}
	}
	return "", fmt.Errorf("the server protects by %s, our configuration (hadoop.rpc.protection) allows %s",
		strings.Join(offered, ", "), strings.Join(wanted, ", "))
}

// verify checks that the server knows the password too.
func (d *digest) verify(final string) error {
	c, err := parseDirectives(final)
	if err != nil {
		return fmt.Errorf("read the server's proof: %w", err)
	}
	if !hmac.Equal([]byte(c["rspauth"]), []byte(d.proof(":"))) {
		return errors.New("the server does not know the token's password: is it another's?")
	}
	return nil
}

// proof is the response of one side, whose A2 begins as told.
func (d *digest) proof(a2 string) string {
	a2 += d.uri
	if d.qop != qopAuth {
		a2 += ":00000000000000000000000000000000"
	}
	return hexSum(hexSum(string(d.a1())) + ":" + d.nonce + ":00000001:" + d.cnonce + ":" + d.qop + ":" + hexSum(a2))
}

func (d *digest) a1() []byte {
	return append(sum([]byte(d.user+":"+d.realm+":"+d.password)), []byte(":"+d.nonce+":"+d.cnonce)...)
}

func sum(b []byte) []byte {
	s := md5.Sum(b)
	return s[:]
}

func hexSum(s string) string { return hex.EncodeToString(sum([]byte(s))) }

// quote escapes what is written between quotation marks.
func quote(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
}

// list splits a value of words between commas.
func list(s string) []string {
	var words []string
	for w := range strings.SplitSeq(s, ",") {
		if w = strings.TrimSpace(w); w != "" {
			words = append(words, w)
		}
	}
	return words
}

// parseDirectives reads name=value and name="value", between commas. A name that
// comes again replaces, which is of use to nobody.
func parseDirectives(s string) (map[string]string, error) {
	found := map[string]string{}
	for s = strings.TrimLeft(s, " ,\t"); s != ""; s = strings.TrimLeft(s, " ,\t") {
		name, rest, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("%.40q has no value", s)
		}
		value, rest, err := directiveValue(rest)
		if err != nil {
			return nil, err
		}
		found[strings.TrimSpace(name)] = value
		s = rest
	}
	return found, nil
}

func directiveValue(s string) (value, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ",")
		return strings.TrimSpace(value), rest, nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		case '"':
			return b.String(), s[i+1:], nil
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", fmt.Errorf("%.40q has no end", s)
}
