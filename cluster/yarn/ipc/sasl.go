package ipc

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// authenticate proves to the server that the token is ours. What follows is protected
// as was agreed on.
func (c *Conn) authenticate(token *credentials.Token, qops []string) error {
	if err := c.sendSASL(&yarnpb.RpcSasl{State: yarnpb.RpcSasl_NEGOTIATE.Enum()}); err != nil {
		return err
	}
	var d *digest
	for {
		m, err := c.receiveSASL()
		if err != nil {
			return err
		}
		switch {
		case m.GetState() == yarnpb.RpcSasl_NEGOTIATE && d == nil:
			auth := tokenAuth(m.GetAuths())
			if auth == nil {
				return fmt.Errorf("the server takes no token: it offers %s", offers(m.GetAuths()))
			}
			encode := base64.StdEncoding.EncodeToString
			d = newDigest(encode(token.Identifier), encode(token.Password), auth.GetProtocol()+"/"+auth.GetServerId())
			response, err := d.respond(string(auth.GetChallenge()), qops)
			if err != nil {
				return err
			}
			auth.Challenge = nil
			err = c.sendSASL(&yarnpb.RpcSasl{State: yarnpb.RpcSasl_INITIATE.Enum(), Token: []byte(response), Auths: []*yarnpb.RpcSasl_SaslAuth{auth}})
			if err != nil {
				return err
			}
		case m.GetState() == yarnpb.RpcSasl_SUCCESS && d != nil:
			if err := d.verify(string(m.GetToken())); err != nil {
				return err
			}
			c.out, c.in, err = d.layers()
			return err
		default:
			return fmt.Errorf("the server answers %s in the middle of the authentication", m.GetState())
		}
	}
}

// tokenAuth is the way in for tokens.
func tokenAuth(auths []*yarnpb.RpcSasl_SaslAuth) *yarnpb.RpcSasl_SaslAuth {
	for _, a := range auths {
		if a.GetMethod() == "TOKEN" && a.GetMechanism() == "DIGEST-MD5" {
			return a
		}
	}
	return nil
}

func offers(auths []*yarnpb.RpcSasl_SaslAuth) string {
	var b bytes.Buffer
	for i, a := range auths {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.GetMethod())
	}
	return b.String()
}

func (c *Conn) sendSASL(m *yarnpb.RpcSasl) error {
	frame, err := encodeFrame(saslCall, []byte{}, m)
	if err != nil {
		return err
	}
	_, err = c.nc.Write(frame)
	return err
}

func (c *Conn) receiveSASL() (*yarnpb.RpcSasl, error) {
	a, err := readFrame(c.reader)
	if err != nil {
		return nil, err
	}
	if err := a.refusal(); err != nil {
		return nil, err
	}
	m := &yarnpb.RpcSasl{}
	if err := a.message(m); err != nil {
		return nil, fmt.Errorf("read an answer of the authentication: %w", err)
	}
	return m, nil
}

// protect makes what is sent of a frame.
func (c *Conn) protect(frame []byte) ([]byte, error) {
	if c.out == nil {
		return frame, nil
	}
	return encodeFrame(saslCall, []byte{}, &yarnpb.RpcSasl{State: yarnpb.RpcSasl_WRAP.Enum(), Token: c.out.wrap(frame)})
}

// unprotected reads the frames inside of protected messages, which need not begin and
// end together.
type unprotected struct {
	from io.Reader
	in   *layer
	rest []byte
}

func (u *unprotected) Read(b []byte) (int, error) {
	for len(u.rest) == 0 {
		a, err := readFrame(u.from)
		if err != nil {
			return 0, err
		}
		if err := a.refusal(); err != nil {
			return 0, err
		}
		m := &yarnpb.RpcSasl{}
		if err := a.message(m); err != nil || m.GetState() != yarnpb.RpcSasl_WRAP {
			return 0, errors.Join(fmt.Errorf("want a protected message, got %s", m.GetState()), err)
		}
		if u.rest, err = u.in.unwrap(m.GetToken()); err != nil {
			return 0, err
		}
	}
	n := copy(b, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// introduction tells the server which protocol is spoken, and by whom where no token
// tells it: a user's name beside a token is refused.
func introduction(protocol, user string, token *credentials.Token) proto.Message {
	m := &yarnpb.IpcConnectionContext{Protocol: &protocol}
	if token == nil {
		m.UserInfo = &yarnpb.UserInformation{EffectiveUser: &user}
	}
	return m
}
