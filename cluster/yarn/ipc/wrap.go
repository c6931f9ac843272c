package ipc

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/rc4"
	"encoding/binary"
	"errors"
)

// layer protects messages in one direction as RFC 2831 has it:
//
//	auth-int   message | HMAC, 10 bytes         | 0x0001 | sequence, 4 bytes
//	auth-conf  message | HMAC, both encrypted   | 0x0001 | sequence, 4 bytes
//
// One goroutine at a time uses it.
type layer struct {
	sign     []byte
	cipher   *rc4.Cipher // nil for auth-int
	sequence uint32
}

const (
	macSize     = 10
	trailerSize = macSize + 2 + 4
)

// layers are those of what is sent and what is received, or nil for auth alone.
func (d *digest) layers() (send, receive *layer, err error) {
	if d.qop == qopAuth {
		return nil, nil, nil
	}
	if send, err = d.layer("client-to-server"); err != nil {
		return nil, nil, err
	}
	receive, err = d.layer("server-to-client")
	return send, receive, err
}

func (d *digest) layer(direction string) (*layer, error) {
	h := sum(d.a1())
	l := &layer{sign: sum(append(append([]byte{}, h...), "Digest session key to "+direction+" signing key magic constant"...))}
	if d.qop != qopConf {
		return l, nil
	}
	var err error
	l.cipher, err = rc4.NewCipher(sum(append(append([]byte{}, h...), "Digest H(A1) to "+direction+" sealing key magic constant"...)))
	return l, err
}

// mac is the signature of the message that has the sequence's number.
func (l *layer) mac(message []byte) []byte {
	m := hmac.New(md5.New, l.sign)
	var n [4]byte
	binary.BigEndian.PutUint32(n[:], l.sequence)
	m.Write(n[:])
	m.Write(message)
	return m.Sum(nil)[:macSize]
}

// wrap protects a message that is sent.
func (l *layer) wrap(message []byte) []byte {
	out := append(append(make([]byte, 0, len(message)+trailerSize), message...), l.mac(message)...)
	if l.cipher != nil {
		l.cipher.XORKeyStream(out, out)
	}
	out = append(out, 0, 1)
	out = binary.BigEndian.AppendUint32(out, l.sequence)
	l.sequence++
	return out
}

var errWrapped = errors.New("a protected message was changed on its way")

// unwrap checks a message that was received, and takes the protection off.
func (l *layer) unwrap(wrapped []byte) ([]byte, error) {
	if len(wrapped) < trailerSize {
		return nil, errWrapped
	}
	body, trailer := append([]byte{}, wrapped[:len(wrapped)-6]...), wrapped[len(wrapped)-6:]
	if trailer[0] != 0 || trailer[1] != 1 || binary.BigEndian.Uint32(trailer[2:]) != l.sequence {
		return nil, errWrapped
	}
	if l.cipher != nil {
		l.cipher.XORKeyStream(body, body)
	}
	message, mac := body[:len(body)-macSize], body[len(body)-macSize:]
	if !hmac.Equal(mac, l.mac(message)) {
		return nil, errWrapped
	}
	l.sequence++
	return message, nil
}
