// Package credentials reads and writes Hadoop's tokens: single ones, and the token file that a container
// finds with HADOOP_TOKEN_FILE_LOCATION and that a launch context contains. The contents are secret.
package credentials

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Kinds of YARN's tokens.
const (
	AMRM = "YARN_AM_RM_TOKEN" // authenticates an ApplicationMaster to the ResourceManager
	NM   = "NMToken"          // authenticates an ApplicationMaster to one NodeManager
)

// Token authenticates its owner.
type Token struct {
	Identifier, Password []byte
	Kind, Service        string
}

// FromProto returns the token in a message.
func FromProto(t *yarnpb.Token) *Token {
	return &Token{Identifier: t.GetIdentifier(), Password: t.GetPassword(), Kind: t.GetKind(), Service: t.GetService()}
}

// String describes the token without its secret.
func (t *Token) String() string { return fmt.Sprintf("%s for %q", t.Kind, t.Service) }

// A file begins with magic and a byte with the form of the rest.
const (
	magic         = "HDTS"
	writableForm  = 0
	protobufForm  = 1
	maxEntries    = 10_000
	errFileFormat = "read a token file: %w"
)

var errTruncated = errors.New("the file ends too early")

// File is the content of a token file.
type File struct {
	Tokens  []*Token
	Secrets map[string][]byte // keys are the application's own names
}

// Load reads a token file.
func Load(path string) (*File, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf(errFileFormat, err)
	}
	f, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Parse reads a file in either of its forms.
func Parse(b []byte) (*File, error) {
	form, ok := bytes.CutPrefix(b, []byte(magic))
	if len(b) == 0 {
		return nil, fmt.Errorf(errFileFormat, errors.New("the file is empty"))
	}
	if !ok || len(form) == 0 {
		return nil, fmt.Errorf(errFileFormat, errors.New("the file is not one that Hadoop wrote for tokens"))
	}
	switch form[0] {
	case writableForm:
		f, err := parseWritable(form[1:])
		if err != nil {
			return nil, fmt.Errorf(errFileFormat, err)
		}
		return f, nil
	case protobufForm:
		var c yarnpb.Credentials
		if err := protodelim.UnmarshalFrom(bytes.NewReader(form[1:]), &c); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
				err = errTruncated
			}
			return nil, fmt.Errorf(errFileFormat, err)
		}
		f := &File{Secrets: map[string][]byte{}}
		for _, t := range c.GetTokens() {
			f.Tokens = append(f.Tokens, FromProto(t.GetToken()))
		}
		for _, s := range c.GetSecrets() {
			f.Secrets[s.GetAlias()] = s.GetSecret()
		}
		return f, nil
	}
	return nil, fmt.Errorf(errFileFormat,
		fmt.Errorf("the file has form %d, which this tfcluster does not know: use Hadoop 2 or 3", form[0]))
}

func parseWritable(b []byte) (*File, error) {
	r, c := reader{b: b}, &File{Secrets: map[string][]byte{}}
	n := r.int()
	if n < 0 || n > maxEntries {
		return nil, fmt.Errorf("the file says that it has %d tokens: it is damaged", n)
	}
	for range n {
		r.bytes() // the alias
		c.Tokens = append(c.Tokens,
			&Token{Identifier: r.bytes(), Password: r.bytes(), Kind: string(r.bytes()), Service: string(r.bytes())})
	}
	if n = r.int(); n < 0 || n > maxEntries {
		return nil, fmt.Errorf("the file says that it has %d secrets: it is damaged", n)
	}
	for range n {
		alias := string(r.bytes())
		c.Secrets[alias] = r.bytes()
	}
	if r.failed {
		return nil, errTruncated
	}
	return c, nil
}

// reader reads Hadoop's Writable encoding. After a failure it returns zero values.
type reader struct {
	b      []byte
	failed bool
}

// int reads a variable-length integer: a small one is a single byte; otherwise the first byte encodes the
// sign and the length.
func (r *reader) int() int64 {
	if len(r.b) == 0 {
		r.failed = true
		return 0
	}
	first := int8(r.b[0])
	r.b = r.b[1:]
	if first >= -112 {
		return int64(first)
	}
	n, negative := -112-int(first), false
	if first < -120 {
		n, negative = -120-int(first), true
	}
	if len(r.b) < n {
		r.failed = true
		return 0
	}
	var v [8]byte
	copy(v[8-n:], r.b[:n])
	r.b = r.b[n:]
	i := int64(binary.BigEndian.Uint64(v[:]))
	if negative {
		i = ^i
	}
	return i
}

func (r *reader) bytes() []byte {
	n := r.int()
	if r.failed || n < 0 || n > int64(len(r.b)) {
		r.failed = true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

// Encode writes a file in the form that every version of Hadoop reads.
func (f *File) Encode() []byte {
	b := append([]byte(magic), writableForm)
	b = appendInt(b, len(f.Tokens))
	for _, t := range f.Tokens {
		for _, part := range [][]byte{[]byte(t.Service), t.Identifier, t.Password, []byte(t.Kind), []byte(t.Service)} {
			b = append(appendInt(b, len(part)), part...)
		}
	}
	b = appendInt(b, len(f.Secrets))
	for _, name := range slices.Sorted(maps.Keys(f.Secrets)) {
		for _, part := range [][]byte{[]byte(name), f.Secrets[name]} {
			b = append(appendInt(b, len(part)), part...)
		}
	}
	return b
}

// appendInt encodes a non-negative integer as reader.int reads it.
func appendInt(b []byte, v int) []byte {
	if v <= 127 {
		return append(b, byte(v))
	}
	var full [8]byte
	binary.BigEndian.PutUint64(full[:], uint64(v))
	digits := bytes.TrimLeft(full[:], "\x00")
	return append(append(b, byte(int8(-112-len(digits)))), digits...)
}
