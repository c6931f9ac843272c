package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Flags of a frame (RFC 23, "Framing").
const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1
	flagCommand = 1 << 2
	flagsKnown  = flagMore | flagLong | flagCommand
)

// Sizes of the two frame headers, and the longest body of a short frame.
const (
	shortHeader = 2
	longHeader  = 9
	maxShort    = 255
)

// allocStep limits the memory allocated ahead of received bytes because of a frame's claimed
// length.
const allocStep = 1 << 20

// Errors of a peer that violates the protocol or the limits; its connection is closed.
var (
	ErrFrameTooLong   = errors.New("the peer sent a longer frame than is allowed")
	ErrMessageTooLong = errors.New("the peer sent a longer message than is allowed")
	ErrTooManyFrames  = errors.New("the peer sent a message of too many frames")
	ErrBadFrame       = errors.New("the peer sent a malformed frame, so it is no working Jupyter client")
)

// Message is the frames of one ZeroMQ message. Passing a message to a Send method transfers it
// to the socket: its frames are written without a copy and must not be changed.
type Message [][]byte

// Size returns the sum of the frames' lengths in bytes.
func (m Message) Size() int64 {
	var n int64
	for _, f := range m {
		n += int64(len(f))
	}
	return n
}

// AppendMessage appends the encoded frames of a message to b (RFC 23, "Framing").
func AppendMessage(b []byte, m Message) []byte {
	for i, f := range m {
		b = append(appendHeader(b, moreFlag(m, i), len(f)), f...)
	}
	return b
}

// moreFlag returns the flags of frame i of a message.
func moreFlag(m Message, i int) byte {
	if i < len(m)-1 {
		return flagMore
	}
	return 0
}

// frameReader reads the frames and messages of one peer within the limits of Options.
type frameReader struct {
	r          *bufio.Reader
	maxFrame   int64
	maxMessage int64
	maxFrames  int
	allowed    allowance
	opener     *opener // nil for a peer without encryption
}

// frameOverhead is added to the size of each frame, so that many empty ones count too.
const frameOverhead = 64

// frame reads one frame and returns its flags and body.
func (fr *frameReader) frame() (flags byte, body []byte, err error) {
	flags, err = fr.r.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	if flags&^flagsKnown != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, nil, fmt.Errorf("%w: flags %#02x", ErrBadFrame, flags)
	}
	size, err := fr.length(flags)
	if err != nil {
		return 0, nil, err
	}
	if size > uint64(fr.maxFrame) {
		return 0, nil, fmt.Errorf("%w: %d bytes, the limit is %d; its message is lost: send less in a message",
			ErrFrameTooLong, size, fr.maxFrame)
	}
	body, err = fr.body(int(size))
	if err != nil || fr.opener == nil {
		return flags, body, err
	}
	return fr.opener.open(flags, body)
}

func (fr *frameReader) length(flags byte) (uint64, error) {
	if flags&flagLong == 0 {
		b, err := fr.r.ReadByte()
		return uint64(b), noEOF(err)
	}
	var h [8]byte
	if _, err := io.ReadFull(fr.r, h[:]); err != nil {
		return 0, noEOF(err)
	}
	return binary.BigEndian.Uint64(h[:]), nil
}

// body reads size bytes. Beyond allocStep the buffer grows only as bytes arrive.
func (fr *frameReader) body(size int) ([]byte, error) {
	if err := fr.allowed.take(int64(min(size, allocStep)) + frameOverhead); err != nil {
		return nil, err
	}
	buf := make([]byte, min(size, allocStep))
	if _, err := io.ReadFull(fr.r, buf); err != nil {
		return nil, noEOF(err)
	}
	for len(buf) < size {
		have := len(buf)
		if err := fr.allowed.take(int64(min(size, 4*have) - have)); err != nil {
			return nil, err
		}
		grown := make([]byte, min(size, 4*have))
		copy(grown, buf)
		if _, err := io.ReadFull(fr.r, grown[have:]); err != nil {
			return nil, noEOF(err)
		}
		buf = grown
	}
	return buf, nil
}

// message reads the next complete message and passes commands before and in it to command. The
// protocol allows commands between messages (RFC 23: "traffic = *(message | command)"); libzmq
// also sends its PING between two frames of one.
func (fr *frameReader) message(command func(body []byte) error) (Message, error) {
	var (
		m    Message
		size int64
	)
	for {
		held := fr.allowed.held
		flags, body, err := fr.frame()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if err := command(body); err != nil {
				return nil, err
			}
			fr.allowed.releaseTo(held) // a command ends with its handling; the message's frames do not
			continue
		}
		size += int64(len(body)) + frameOverhead
		if size > fr.maxMessage {
			return nil, fmt.Errorf("%w: over %d bytes", ErrMessageTooLong, fr.maxMessage)
		}
		m = append(m, body)
		if flags&flagMore == 0 {
			return m, nil
		}
		if len(m) >= fr.maxFrames {
			return nil, fmt.Errorf("%w: over %d", ErrTooManyFrames, fr.maxFrames)
		}
	}
}

// appendHeader appends the header of a frame of size bytes.
func appendHeader(b []byte, flags byte, size int) []byte {
	if size > maxShort {
		return binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(size))
	}
	return append(b, flags, byte(size))
}

// parseCommand splits a command's body into its name and data.
func parseCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, fmt.Errorf("%w: a command is cut short", ErrBadFrame)
	}
	n := int(body[0])
	return string(body[1 : 1+n]), body[1+n:], nil
}

// commandBody returns the body of a command.
func commandBody(name string, data []byte) []byte {
	return append(append([]byte{byte(len(name))}, name...), data...)
}

// appendCommand appends an encoded command.
func appendCommand(b, body []byte) []byte {
	return append(appendHeader(b, flagCommand, len(body)), body...)
}

// noEOF returns io.ErrUnexpectedEOF for io.EOF, because the stream ended inside a frame.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
