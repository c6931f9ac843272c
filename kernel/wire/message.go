package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Errors of rejected messages.
var (
	ErrNoDelimiter  = errors.New("a message violates Jupyter's protocol: it has no delimiter <IDS|MSG>")
	ErrShort        = errors.New("a message violates Jupyter's protocol: too few parts follow its delimiter")
	ErrBadHeader    = errors.New("the header of a message violates Jupyter's protocol")
	ErrBadSignature = errors.New(
		"the signature of a message is wrong: the client does not have the key of this kernel's connection file")
	ErrReplayed = errors.New("a message was sent twice: somebody may repeat what was recorded on the network")
)

var delimiter = []byte("<IDS|MSG>")

// Version is the protocol version in the headers of our messages.
const Version = "5.4"

// Header is a message's header.
type Header struct {
	MsgID    string `json:"msg_id"`
	MsgType  string `json:"msg_type"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Version  string `json:"version"`
	// Subshell is set on requests to a subshell (JEP 91).
	Subshell string `json:"subshell_id,omitempty"`
}

// Message is a message whose frames were split but not copied: Frames are the received frames
// and can be forwarded unchanged.
type Message struct {
	Frames [][]byte
	Header Header
	at     int // index of the delimiter
}

// Split splits a message into its parts, but does not decode its header.
func Split(frames [][]byte) (*Message, error) {
	at, err := locate(frames)
	if err != nil {
		return nil, err
	}
	return &Message{Frames: frames, at: at}, nil
}

// locate returns the index of the delimiter.
func locate(frames [][]byte) (at int, err error) {
	at = slices.IndexFunc(frames, func(f []byte) bool { return bytes.Equal(f, delimiter) })
	switch {
	case at < 0:
		return 0, ErrNoDelimiter
	case len(frames) < at+6:
		return 0, ErrShort
	}
	return at, nil
}

// Decode splits a message into its parts. It does not check the signature. The Message refers
// to frames.
func Decode(frames [][]byte) (*Message, error) {
	m, err := Split(frames)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(m.RawHeader(), &m.Header); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadHeader, err)
	}
	if m.Header.MsgID == "" || m.Header.MsgType == "" {
		return nil, fmt.Errorf("%w: msg_id or msg_type is missing", ErrBadHeader)
	}
	return m, nil
}

// Peek returns the type of a message and its parent's ID without decoding anything else.
func Peek(frames [][]byte) (msgType, parentID string, ok bool) {
	at, err := locate(frames)
	if err != nil {
		return "", "", false
	}
	return field(frames[at+2], `"msg_type"`), field(frames[at+3], `"msg_id"`), true
}

// field returns a string member of a header without decoding the header, if possible.
func field(b []byte, key string) string {
	if i := bytes.Index(b, []byte(key)); i >= 0 {
		rest := bytes.TrimLeft(b[i+len(key):], " :")
		if len(rest) > 1 && rest[0] == '"' {
			if j := bytes.IndexByte(rest[1:], '"'); j >= 0 && bytes.IndexByte(rest[1:1+j], '\\') < 0 {
				return string(rest[1 : 1+j])
			}
		}
	}
	var h Header
	if len(b) <= len("{}") || json.Unmarshal(b, &h) != nil {
		return ""
	}
	if key == `"msg_id"` {
		return h.MsgID
	}
	return h.MsgType
}

// Identities returns the frames before the delimiter: the address of a reply.
func (m *Message) Identities() [][]byte { return m.Frames[:m.at] }

// RawHeader returns the encoded header.
func (m *Message) RawHeader() []byte { return m.Frames[m.at+2] }

// Parent returns the encoded parent header.
func (m *Message) Parent() []byte { return m.Frames[m.at+3] }

// Content returns the encoded content.
func (m *Message) Content() []byte { return m.Frames[m.at+5] }

// ParentID returns the ID of the request that a message belongs to, or "".
func (m *Message) ParentID() string { return field(m.Parent(), `"msg_id"`) }

// Unmarshal decodes the content.
func (m *Message) Unmarshal(v any) error {
	if err := json.Unmarshal(m.Content(), v); err != nil {
		return fmt.Errorf("the content of a client's %s violates Jupyter's protocol: %w", m.Header.MsgType, err)
	}
	return nil
}

// Signer signs and verifies messages with the key of a connection file. As the protocol
// defines, an empty key disables both. Its methods are safe for concurrent use.
type Signer struct {
	key     []byte
	session string

	mu   sync.Mutex
	seen map[string]struct{} // guarded by mu: signatures, to detect replays
	old  map[string]struct{} // guarded by mu: the previous generation of seen
}

// NewSigner returns a Signer with a new session ID.
func NewSigner(key string) *Signer {
	return &Signer{key: []byte(key), session: NewID(), seen: map[string]struct{}{}}
}

// NewID returns a random ID.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (s *Signer) sign(parts [][]byte) []byte {
	if len(s.key) == 0 {
		return nil
	}
	h := hmac.New(sha256.New, s.key)
	for _, p := range parts {
		h.Write(p)
	}
	return hex.AppendEncode(nil, h.Sum(nil))
}

// Genuine reports whether Verify would accept a message; unlike Verify it does not record it.
func (s *Signer) Genuine(m *Message) bool { return s.verify(m, false) == nil }

// remembered limits how many signatures are kept to detect replays.
const remembered = 1 << 16

// Verify checks the signature of a message, and that the message was not seen before.
func (s *Signer) Verify(m *Message) error { return s.verify(m, true) }

func (s *Signer) verify(m *Message, record bool) error {
	if len(s.key) == 0 {
		return nil
	}
	got := m.Frames[m.at+1]
	if !hmac.Equal(got, s.sign(m.Frames[m.at+2:m.at+6])) {
		return ErrBadSignature
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.seen[string(got)]; again {
		return ErrReplayed
	}
	if _, again := s.old[string(got)]; again {
		return ErrReplayed
	}
	if !record {
		return nil
	}
	if len(s.seen) >= remembered {
		s.old, s.seen = s.seen, make(map[string]struct{}, remembered)
	}
	s.seen[string(got)] = struct{}{}
	return nil
}

// Make returns a signed message. parent is an encoded header or nil; content is encoded here.
func (s *Signer) Make(identities [][]byte, msgType string, parent []byte, content any) [][]byte {
	if parent == nil {
		parent = []byte("{}")
	}
	parts := [][]byte{encode(s.header(NewID(), msgType)), parent, []byte("{}"), encode(content)}
	frames := make([][]byte, 0, len(identities)+2+len(parts))
	frames = append(append(frames, identities...), delimiter, s.sign(parts))
	return append(frames, parts...)
}

// Resign replaces the content of a message and returns the frames with a new signature.
func (s *Signer) Resign(m *Message, content any) [][]byte {
	frames := append([][]byte{}, m.Frames...)
	frames[m.at+5] = encode(content)
	frames[m.at+1] = s.sign(frames[m.at+2 : m.at+6])
	return frames
}

// encode returns JSON without escaping for HTML.
func encode(v any) []byte {
	if raw, ok := v.(json.RawMessage); ok {
		return raw
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		// A value that JSON cannot represent, such as NaN, must not end the kernel.
		return []byte(`{"status":"error","ename":"EncodingError","evalue":"the message could not be encoded","traceback":[]}`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// MakeRequest returns a signed request with the given ID and no identity. The caller recognises
// the answers by the ID.
func (s *Signer) MakeRequest(id, msgType string, content any) [][]byte {
	return s.MakeSubshellRequest(id, "", msgType, content)
}

// MakeSubshellRequest returns a request to a subshell (JEP 91); "" is the main shell.
func (s *Signer) MakeSubshellRequest(id, subshell, msgType string, content any) [][]byte {
	h := s.header(id, msgType)
	h.Subshell = subshell
	parts := [][]byte{encode(h), []byte("{}"), []byte("{}"), encode(content)}
	return append([][]byte{delimiter, s.sign(parts)}, parts...)
}

func (s *Signer) header(id, msgType string) Header {
	return Header{
		MsgID: id, MsgType: msgType, Session: s.session, Username: "tfcluster",
		Date: time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"), Version: Version,
	}
}
