package ipc

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/rc4"
	"encoding/binary"
	"errors"
)

// securityLayer protects the messages of one direction as in RFC 2831:
//
//	auth-int   message | HMAC, 10 bytes         | 0x0001 | sequence, 4 bytes
//	auth-conf  message | HMAC, both encrypted   | 0x0001 | sequence, 4 bytes
//
// It is not safe for concurrent use.
type securityLayer struct {
	sign     []byte
	cipher   *rc4.Cipher // nil for auth-int
	sequence uint32
}

const (
	macSize     = 10
	trailerSize = macSize + 2 + 4
)

// securityLayers returns those of the sent and the received messages, or nil without protection.
func (d *digest) securityLayers() (send, receive *securityLayer, err error) {
	if d.qop == qopAuth {
		return nil, nil, nil
	}
	if send, err = d.securityLayer("client-to-server"); err != nil {
		return nil, nil, err
	}
	receive, err = d.securityLayer("server-to-client")
	return send, receive, err
}

func (d *digest) securityLayer(direction string) (*securityLayer, error) {
	h := sum(d.a1())
	l := &securityLayer{
		sign: sum(append(append([]byte{}, h...), "Digest session key to "+direction+" signing key magic constant"...)),
	}
	if d.qop != qopConf {
		return l, nil
	}
	var err error
	l.cipher, err = rc4.NewCipher(
		sum(append(append([]byte{}, h...), "Digest H(A1) to "+direction+" sealing key magic constant"...)))
	return l, err
}

// mac returns the signature of a message with the present sequence number.
func (l *securityLayer) mac(message []byte) []byte {
	m := hmac.New(md5.New, l.sign)
	var n [4]byte
	binary.BigEndian.PutUint32(n[:], l.sequence)
	m.Write(n[:])
	m.Write(message)
	return m.Sum(nil)[:macSize]
}

// wrap protects a message before it is sent.
func (l *securityLayer) wrap(message []byte) []byte {
	out := append(append(make([]byte, 0, len(message)+trailerSize), message...), l.mac(message)...)
	if l.cipher != nil {
		l.cipher.XORKeyStream(out, out)
	}
	out = append(out, 0, 1)
	out = binary.BigEndian.AppendUint32(out, l.sequence)
	l.sequence++
	return out
}

var errTampered = errors.New(
	"a protected message of the Hadoop server does not have the signature that it should: the network may have changed it")

// unwrap verifies and decrypts a received message.
func (l *securityLayer) unwrap(wrapped []byte) ([]byte, error) {
	if len(wrapped) < trailerSize {
		return nil, errTampered
	}
	body, trailer := append([]byte{}, wrapped[:len(wrapped)-6]...), wrapped[len(wrapped)-6:]
	if trailer[0] != 0 || trailer[1] != 1 || binary.BigEndian.Uint32(trailer[2:]) != l.sequence {
		return nil, errTampered
	}
	if l.cipher != nil {
		l.cipher.XORKeyStream(body, body)
	}
	message, mac := body[:len(body)-macSize], body[len(body)-macSize:]
	if !hmac.Equal(mac, l.mac(message)) {
		return nil, errTampered
	}
	l.sequence++
	return message, nil
}
