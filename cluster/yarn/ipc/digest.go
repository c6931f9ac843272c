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

// Qualities of protection in SASL, weakest first.
const (
	qopAuth = "auth"      // the peers authenticate each other once
	qopInt  = "auth-int"  // each message is signed
	qopConf = "auth-conf" // each message is encrypted
)

// digest is one authentication with DIGEST-MD5 (RFC 2831).
type digest struct {
	user, password string
	uri            string // protocol/server
	cnonce         string

	realm, nonce, qop, cipher string // from the challenge
}

// newDigest returns an authentication with a token's identifier and password in base64.
func newDigest(user, password, uri string) *digest {
	return &digest{user: user, password: password, uri: uri, cnonce: rand.Text()}
}

// respond returns the response to a challenge, with the first of the wanted qualities of protection that the
// server offers, or the weakest it offers if none is wanted.
func (d *digest) respond(challenge string, wanted []string) (string, error) {
	c, err := parseDirectives(challenge)
	if err != nil {
		return "", notHadoop("the server's challenge is not DIGEST-MD5 (%w)", err)
	}
	if c["nonce"] == "" || (c["algorithm"] != "" && c["algorithm"] != "md5-sess") {
		return "", notHadoop("the server's challenge is not DIGEST-MD5 (algorithm %q)", c["algorithm"])
	}
	d.realm, d.nonce = c["realm"], c["nonce"]
	if d.qop, err = chooseQOP(wanted, c["qop"]); err != nil {
		return "", err
	}
	response := fmt.Sprintf(`charset=utf-8,username="%s",realm="%s",nonce="%s",nc=00000001,cnonce="%s",digest-uri="%s",`+
		`maxbuf=65536,response=%s,qop=%s`,
		quote(d.user), quote(d.realm), quote(d.nonce), d.cnonce, quote(d.uri), d.responseValue("AUTHENTICATE:"), d.qop)
	if d.qop == qopConf {
		// rc4 is sufficient: Java's other ciphers rely on MD5 as well.
		if d.cipher = "rc4"; !slices.Contains(splitList(c["cipher"]), d.cipher) {
			return "", &NegotiationError{
				fmt.Sprintf("YARN encrypts with %s, and tfcluster with rc4 alone: ask the administrator to allow rc4 in YARN's "+
					"Java, or to set hadoop.rpc.protection to integrity in core-site.xml, on the cluster and here", c["cipher"]),
			}
		}
		response += `,cipher="` + d.cipher + `"`
	}
	return response, nil
}

// chooseQOP returns the first wanted quality of protection that the server offers.
func chooseQOP(wanted []string, offer string) (string, error) {
	offered := splitList(offer)
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
	return "", &NegotiationError{
		fmt.Sprintf("YARN offers %s, hadoop.rpc.protection in core-site.xml here allows %s: use the cluster's configuration",
			strings.Join(offered, ", "), strings.Join(wanted, ", ")),
	}
}

// verify checks the server's proof that it knows the password.
func (d *digest) verify(final string) error {
	c, err := parseDirectives(final)
	if err != nil {
		return notHadoop("the server's proof is not DIGEST-MD5 (%w)", err)
	}
	if !hmac.Equal([]byte(c["rspauth"]), []byte(d.responseValue(":"))) {
		return &AnswerError{
			Err: errors.New("the server does not know the token's password: check that HADOOP_CONF_DIR is the configuration " +
				"of the YARN that issued the token"),
		}
	}
	return nil
}

// responseValue computes the response of one side; a2 is the beginning of its A2.
func (d *digest) responseValue(a2 string) string {
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

// quote escapes a quoted string.
func quote(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
}

// splitList splits a comma-separated list.
func splitList(s string) []string {
	var words []string
	for w := range strings.SplitSeq(s, ",") {
		if w = strings.TrimSpace(w); w != "" {
			words = append(words, w)
		}
	}
	return words
}

// parseDirectives parses name=value and name="value", separated by commas. The last of several values of a
// name counts.
func parseDirectives(s string) (map[string]string, error) {
	found := map[string]string{}
	for s = strings.TrimLeft(s, " ,\t"); s != ""; s = strings.TrimLeft(s, " ,\t") {
		name, rest, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("the part %.40q has no value", s)
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
	return "", "", fmt.Errorf("the part %.40q has no end", s)
}
