package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
)

// ErrHandshake reports a peer rejected during the handshake; the wrapping error contains the
// reason.
var ErrHandshake = errors.New("zmtp: handshake refused")

// The greeting (RFC 23, "The Greeting"): signature, version, mechanism, as-server, filler.
const (
	greetingSize   = 64
	mechanismStart = 12
	mechanismEnd   = 32
	versionMajor   = 3
	versionMinor   = 1
)

// Limits of a handshake: a READY command contains a socket type and an identity and is small.
const (
	maxReady    = 4096
	maxIdentity = 255
)

// Names of metadata properties; they are compared without regard to case.
const (
	propSocketType = "Socket-Type"
	propIdentity   = "Identity"
)

// handshake exchanges greetings and READY commands and returns the identity chosen by the peer,
// if any. The caller has set a deadline on nc.
func handshake(nc net.Conn, fr *frameReader, kind socketKind) (identity []byte, err error) {
	if _, err := nc.Write(greeting()); err != nil {
		return nil, fmt.Errorf("send greeting: %w", err)
	}
	if err := readGreeting(fr.r); err != nil {
		return nil, err
	}
	var meta []byte
	meta = appendProperty(meta, propSocketType, []byte(kind.name))
	meta = appendProperty(meta, propIdentity, nil)
	if _, err := nc.Write(appendCommand(nil, "READY", meta)); err != nil {
		return nil, fmt.Errorf("send READY: %w", err)
	}
	identity, err = readReady(fr, kind)
	if errors.Is(err, ErrHandshake) {
		// Send the reason to the peer (RFC 23, "ERROR"); it does not matter whether that
		// succeeds.
		reason := err.Error()
		reason = reason[:min(len(reason), maxShort)]
		_, _ = nc.Write(appendCommand(nil, "ERROR", append([]byte{byte(len(reason))}, reason...)))
	}
	return identity, err
}

func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9] = 0xFF, 0x7F
	g[10], g[11] = versionMajor, versionMinor
	copy(g[mechanismStart:], "NULL")
	return g
}

func readGreeting(r io.Reader) error {
	g := make([]byte, greetingSize)
	if _, err := io.ReadFull(r, g[:1]); err != nil {
		return fmt.Errorf("read greeting: %w", err)
	}
	if g[0] != 0xFF { // not ZMTP: do not wait for the rest
		return fmt.Errorf("%w: the peer does not speak ZMTP", ErrHandshake)
	}
	if _, err := io.ReadFull(r, g[1:]); err != nil {
		return fmt.Errorf("read greeting: %w", err)
	}
	if g[9]&1 == 0 || g[10] < versionMajor {
		return fmt.Errorf("%w: the peer uses a version before ZMTP 3", ErrHandshake)
	}
	mechanism := strings.TrimRight(string(g[mechanismStart:mechanismEnd]), "\x00")
	if mechanism != "NULL" {
		return fmt.Errorf("%w: the peer requires the mechanism %q, only NULL is supported", ErrHandshake, mechanism)
	}
	return nil
}

func readReady(fr *frameReader, kind socketKind) (identity []byte, err error) {
	small := *fr
	small.maxFrame = maxReady
	flags, body, err := small.frame()
	if err != nil {
		return nil, fmt.Errorf("read READY: %w", err)
	}
	if flags&flagCommand == 0 {
		return nil, fmt.Errorf("%w: a message before READY", ErrHandshake)
	}
	name, data, err := parseCommand(body)
	if err != nil {
		return nil, fmt.Errorf("read READY: %w", err)
	}
	if name != "READY" {
		return nil, fmt.Errorf("%w: %q before READY", ErrHandshake, name)
	}
	meta, err := parseProperties(data)
	if err != nil {
		return nil, err
	}
	peer := string(meta[strings.ToLower(propSocketType)])
	if !slices.Contains(kind.peers, peer) {
		return nil, fmt.Errorf("%w: a %s socket cannot talk to a %q socket", ErrHandshake, kind.name, peer)
	}
	identity = meta[strings.ToLower(propIdentity)]
	if len(identity) > maxIdentity || bytes.HasPrefix(identity, []byte{0}) { // a leading zero is reserved for identities assigned by the socket
		return nil, fmt.Errorf("%w: bad identity", ErrHandshake)
	}
	return identity, nil
}

// parseProperties parses the metadata of a READY command; names are returned in lower case.
func parseProperties(p []byte) (map[string][]byte, error) {
	meta := make(map[string][]byte)
	for len(p) > 0 {
		n := int(p[0])
		if n == 0 || len(p) < 1+n+4 {
			return nil, fmt.Errorf("%w: malformed metadata", ErrHandshake)
		}
		name := strings.ToLower(string(p[1 : 1+n]))
		size := binary.BigEndian.Uint32(p[1+n:])
		p = p[1+n+4:]
		if uint64(size) > uint64(len(p)) {
			return nil, fmt.Errorf("%w: malformed metadata", ErrHandshake)
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
