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
	"sync"
	"time"
)

// Errors of a message that is not taken.
var (
	ErrNoDelimiter  = errors.New("wire: no delimiter among the frames")
	ErrShort        = errors.New("wire: too few frames after the delimiter")
	ErrBadHeader    = errors.New("wire: the header is not what the protocol says")
	ErrBadSignature = errors.New("wire: the signature is wrong")
	ErrReplayed     = errors.New("wire: the message was seen before")
)

var delimiter = []byte("<IDS|MSG>")

// Version is the protocol's, as said in the headers of messages we make.
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

// Message is one message, split but not copied: Frames is what came over the wire and
// may be sent on as it is.
type Message struct {
	Frames [][]byte
	Header Header
	at     int // of the delimiter
}

// Decode splits frames; it does not check the signature. The frames are kept.
func Decode(frames [][]byte) (*Message, error) {
	for i, f := range frames {
		if !bytes.Equal(f, delimiter) {
			continue
		}
		if len(frames) < i+6 {
			return nil, ErrShort
		}
		m := &Message{Frames: frames, at: i}
		if err := json.Unmarshal(frames[i+2], &m.Header); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadHeader, err)
		}
		if m.Header.MsgID == "" || m.Header.MsgType == "" {
			return nil, fmt.Errorf("%w: it has no id or no type", ErrBadHeader)
		}
		return m, nil
	}
	return nil, ErrNoDelimiter
}

// Peek finds a message's type without decoding anything else, for pass-through.
func Peek(frames [][]byte) (msgType, parentID string, ok bool) {
	for i, f := range frames {
		if !bytes.Equal(f, delimiter) {
			continue
		}
		if len(frames) < i+6 {
			return "", "", false
		}
		return field(frames[i+2], `"msg_type"`), field(frames[i+3], `"msg_id"`), true
	}
	return "", "", false
}

// field reads a plain string member of a header without decoding it all; where that
// does not work it decodes.
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

// Identities are the frames before the delimiter: whom an answer goes to.
func (m *Message) Identities() [][]byte { return m.Frames[:m.at] }

// RawHeader is the header as it came.
func (m *Message) RawHeader() []byte { return m.Frames[m.at+2] }

// Parent is the raw parent header.
func (m *Message) Parent() []byte { return m.Frames[m.at+3] }

// Metadata is the raw metadata.
func (m *Message) Metadata() []byte { return m.Frames[m.at+4] }

// Content is the raw content.
func (m *Message) Content() []byte { return m.Frames[m.at+5] }

// Buffers are the frames after the content.
func (m *Message) Buffers() [][]byte { return m.Frames[m.at+6:] }

// ParentID is the id of the request a message belongs to, "" for none.
func (m *Message) ParentID() string { return field(m.Parent(), `"msg_id"`) }

// Unmarshal decodes the content.
func (m *Message) Unmarshal(v any) error {
	if err := json.Unmarshal(m.Content(), v); err != nil {
		return fmt.Errorf("read the content of %s: %w", m.Header.MsgType, err)
	}
	return nil
}

// Signer signs and checks messages with the key of a connection file. An empty key
// neither signs nor checks, as the protocol has it. Its methods may be called from any
// goroutine.
type Signer struct {
	key     []byte
	session string

	mu   sync.Mutex
	seen map[string]struct{} // guarded by mu: signatures, for replays
	old  map[string]struct{} // guarded by mu: the generation before
}

// NewSigner makes a signer with a session of its own.
func NewSigner(key string) *Signer {
	return &Signer{key: []byte(key), session: NewID(), seen: map[string]struct{}{}}
}

// NewID makes a random id.
func NewID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // the system's random source is gone
	}
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

// Genuine is whether Verify would take a message; unlike Verify it does not remember it.
func (s *Signer) Genuine(m *Message) bool {
	if len(s.key) == 0 {
		return true
	}
	got := m.Frames[m.at+1]
	if !hmac.Equal(got, s.sign(m.Frames[m.at+2:m.at+6])) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, again := s.seen[string(got)]
	_, before := s.old[string(got)]
	return !again && !before
}

// remembered bounds how many signatures are kept to find replays.
const remembered = 1 << 16

// Verify checks a message's signature and that it was not seen before.
func (s *Signer) Verify(m *Message) error {
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
	if len(s.seen) >= remembered {
		s.old, s.seen = s.seen, make(map[string]struct{}, remembered)
	}
	s.seen[string(got)] = struct{}{}
	return nil
}

// Make builds a signed message. parent is a raw header or nil; content is encoded.
func (s *Signer) Make(identities [][]byte, msgType string, parent []byte, content any) [][]byte {
	if parent == nil {
		parent = []byte("{}")
	}
	parts := [][]byte{encode(s.header(NewID(), msgType)), parent, []byte("{}"), encode(content)}
	frames := make([][]byte, 0, len(identities)+2+len(parts))
	frames = append(append(frames, identities...), delimiter, s.sign(parts))
	return append(frames, parts...)
}

// Resign replaces a message's content and signs it anew.
func (s *Signer) Resign(m *Message, content any) [][]byte {
	frames := append([][]byte{}, m.Frames...)
	frames[m.at+5] = encode(content)
	frames[m.at+1] = s.sign(frames[m.at+2 : m.at+6])
	return frames
}

// encode is JSON without escaping of HTML, which no client needs.
func encode(v any) []byte {
	if raw, ok := v.(json.RawMessage); ok {
		return raw
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		// Contents are ours; what a program put into them (a NaN) must not kill the kernel.
		return []byte(`{"status":"error","ename":"EncodingError","evalue":"the message could not be encoded","traceback":[]}`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// MakeRequest builds a signed request under an id of the caller's choice, without an
// identity: whoever sees its answers can tell that they are the caller's own.
func (s *Signer) MakeRequest(id, msgType string, content any) [][]byte {
	return s.MakeSubshellRequest(id, "", msgType, content)
}

// MakeSubshellRequest is MakeRequest to a subshell (JEP 91); "" is the main one.
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
