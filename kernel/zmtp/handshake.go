package zmtp

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrHandshake reports a peer rejected during the handshake; the wrapping error contains the
// reason.
var ErrHandshake = errors.New("a client's connection is refused")

// The greeting (RFC 23, "The Greeting"): signature, version, mechanism, as-server, filler.
const (
	greetingSize   = 64
	mechanismStart = 12
	mechanismEnd   = 32 // as-server follows
	asServer       = 1
	versionMajor   = 3
	versionMinor   = 1
)

// Limits of a handshake: metadata are a socket type and an identity, and small.
const (
	maxReady    = 4096
	maxIdentity = 255
)

// Names of metadata properties; they are compared without regard to case.
const (
	propSocketType = "Socket-Type"
	propIdentity   = "Identity"
)

// Mechanisms of a greeting.
const (
	mechanismNull  = "NULL"
	mechanismCurve = "CURVE"
)

// performHandshake exchanges greetings and the commands of the socket's mechanism, CURVE if there are
// keys. It returns the identity chosen by the peer, if any, and what encrypts for it, nil
// without keys. The caller has set a deadline on nc.
func performHandshake(nc net.Conn, fr *frameReader, kind socketKind,
	keys *CurveKeys,
) (identity []byte, out *sealer, err error) {
	mechanism := mechanismNull
	if keys != nil {
		mechanism = mechanismCurve
	}
	if err := greet(nc, fr.r, mechanism); err != nil {
		return nil, nil, err
	}
	if keys != nil {
		return curveHandshake(nc, fr, kind, newCurveServer(keys, rand.Reader))
	}
	identity, err = nullHandshake(nc, fr, kind)
	return identity, nil, err
}

// holdMechanism is how long a peer may take to tell its mechanism before it is told ours.
const holdMechanism = time.Second

// greet exchanges greetings. libzmq closes the connection when it reads another mechanism than
// its own, before it has sent its own. So ours is sent after the peer's was read, which it sends
// once it knows the version: then it can be named. It is sent even if it is another one, because
// then libzmq does not connect again. A peer may wait for ours, though: RFC 37 has those who accept
// no older version send the whole greeting at once, and only asks others to answer a whole one. So
// ours is held back for a second at most. That costs each connection one round trip, with NULL
// too: a CURVE client that comes to a socket without keys can be named only so.
func greet(nc net.Conn, r io.Reader, mechanism string) error {
	g := greeting(mechanism)
	if _, err := nc.Write(g[:mechanismStart]); err != nil {
		return err
	}
	rest := sync.OnceValue(func() error {
		_, err := nc.Write(g[mechanismStart:])
		return err
	})
	late := time.AfterFunc(holdMechanism, func() { _ = rest() }) // an error is returned below
	theirs, err := readGreeting(r)
	if unsent := late.Stop(); unsent && err != nil {
		return err
	}
	if werr := rest(); werr != nil && err == nil { // it waits for a call that has begun
		err = werr
	}
	if err != nil {
		return err
	}
	return checkMechanism(theirs, mechanism)
}

// nullHandshake exchanges READY commands.
func nullHandshake(nc net.Conn, fr *frameReader, kind socketKind) (identity []byte, err error) {
	if err := sendCommand(nc, commandBody("READY", ownMetadata(kind))); err != nil {
		return nil, err
	}
	identity, err = readReady(fr, kind)
	if errors.Is(err, ErrHandshake) {
		sendRefusal(nc, err)
	}
	return identity, err
}

func readReady(fr *frameReader, kind socketKind) (identity []byte, err error) {
	body, err := readCommand(fr, "READY", maxReady)
	if err != nil {
		return nil, err
	}
	name, data, err := parseCommand(body)
	if err != nil {
		return nil, err
	}
	if name != "READY" {
		return nil, fmt.Errorf("%w: it sent %q instead of READY", ErrHandshake, name)
	}
	return checkMetadata(data, kind)
}

func sendCommand(nc net.Conn, body []byte) error {
	_, err := nc.Write(appendCommand(nil, body))
	return err
}

// sendRefusal sends the reason to the peer (RFC 23, "ERROR"); it does not matter whether that
// succeeds.
func sendRefusal(nc net.Conn, err error) {
	reason := err.Error()
	reason = reason[:min(len(reason), maxShort)]
	_ = sendCommand(nc, commandBody("ERROR", append([]byte{byte(len(reason))}, reason...)))
}

func greeting(mechanism string) []byte {
	g := make([]byte, greetingSize)
	g[0], g[9] = 0xFF, 0x7F
	g[10], g[11] = versionMajor, versionMinor
	copy(g[mechanismStart:], mechanism)
	if mechanism == mechanismCurve {
		g[mechanismEnd] = asServer
	}
	return g
}

// readGreeting reads the peer's greeting.
func readGreeting(r io.Reader) ([]byte, error) {
	g := make([]byte, greetingSize)
	if _, err := io.ReadFull(r, g[:1]); err != nil {
		return nil, err
	}
	if g[0] != 0xFF { // not ZMTP: do not wait for the rest
		return nil, fmt.Errorf("%w: the peer does not speak ZMTP, so it is no Jupyter client (a port scanner or a "+
			"browser?); the kernel is not affected", ErrHandshake)
	}
	if _, err := io.ReadFull(r, g[1:]); err != nil {
		return nil, err
	}
	if g[9]&1 == 0 || g[10] < versionMajor {
		return nil, fmt.Errorf("%w: the peer uses a version before ZMTP 3", ErrHandshake)
	}
	return g, nil
}

// checkMechanism checks that a peer's greeting names this mechanism.
func checkMechanism(theirs []byte, mechanism string) error {
	name := strings.TrimRight(string(theirs[mechanismStart:mechanismEnd]), "\x00")
	switch {
	case name == mechanism && mechanism == mechanismCurve && theirs[mechanismEnd]&asServer != 0:
		return fmt.Errorf("%w: the peer is a CURVE server, as this socket is: only clients can connect", ErrHandshake)
	case name == mechanism:
		return nil
	case mechanism == mechanismCurve:
		return fmt.Errorf("%w: the peer does not encrypt (mechanism %q), and this socket requires CURVE: "+
			"connect with its public key", ErrHandshake, name)
	}
	return fmt.Errorf("%w: the peer requires the mechanism %q, and this socket has no keys: "+
		"connect without encryption (NULL)", ErrHandshake, name)
}

// readCommand reads the body of the command that must come next, of at most size bytes.
func readCommand(fr *frameReader, want string, size int) ([]byte, error) {
	small := *fr
	small.maxFrame = int64(size)
	flags, body, err := small.frame()
	if err != nil {
		return nil, err
	}
	if flags&flagCommand == 0 {
		return nil, fmt.Errorf("%w: it sent a message before %s", ErrHandshake, want)
	}
	return body, nil
}

// ownMetadata returns the metadata of a socket.
func ownMetadata(kind socketKind) []byte {
	return appendProperty(appendProperty(nil, propSocketType, []byte(kind.name)), propIdentity, nil)
}

// checkMetadata checks the metadata of a peer and returns its identity.
func checkMetadata(metadata []byte, kind socketKind) (identity []byte, err error) {
	meta, err := parseProperties(metadata)
	if err != nil {
		return nil, err
	}
	peer := string(meta[strings.ToLower(propSocketType)])
	if !slices.Contains(kind.peers, peer) {
		return nil, fmt.Errorf("%w: a %s socket cannot talk to a %q socket", ErrHandshake, kind.name, peer)
	}
	identity = meta[strings.ToLower(propIdentity)]
	// A leading zero is reserved for identities assigned by the socket.
	if len(identity) > maxIdentity || bytes.HasPrefix(identity, []byte{0}) {
		return nil, fmt.Errorf("%w: its identity is too long or begins with a zero byte", ErrHandshake)
	}
	return identity, nil
}

// parseProperties parses the metadata of a READY or INITIATE command; names are returned in lower case.
func parseProperties(p []byte) (map[string][]byte, error) {
	meta := make(map[string][]byte)
	for len(p) > 0 {
		n := int(p[0])
		if n == 0 || len(p) < 1+n+4 {
			return nil, fmt.Errorf(
				"%w: the properties in its ZeroMQ handshake (READY) are malformed; correct its ZeroMQ library", ErrHandshake)
		}
		name := strings.ToLower(string(p[1 : 1+n]))
		size := binary.BigEndian.Uint32(p[1+n:])
		p = p[1+n+4:]
		if uint64(size) > uint64(len(p)) {
			return nil, fmt.Errorf(
				"%w: the properties in its ZeroMQ handshake (READY) are malformed; correct its ZeroMQ library", ErrHandshake)
		}
		meta[name] = bytes.Clone(p[:size])
		p = p[size:]
	}
	return meta, nil
}

func appendProperty(b []byte, name string, value []byte) []byte {
	b = append(append(b, byte(len(name))), name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}
