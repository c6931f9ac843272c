package ipc

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// authenticate authenticates with the token. Later messages have the negotiated protection.
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
				return &NegotiationError{noTokens(m.GetAuths())}
			}
			encode := base64.StdEncoding.EncodeToString
			d = newDigest(encode(token.Identifier), encode(token.Password), auth.GetProtocol()+"/"+auth.GetServerId())
			response, err := d.respond(string(auth.GetChallenge()), qops)
			if err != nil {
				return err
			}
			auth.Challenge = nil
			err = c.sendSASL(&yarnpb.RpcSasl{
				State: yarnpb.RpcSasl_INITIATE.Enum(), Token: []byte(response), Auths: []*yarnpb.RpcSasl_SaslAuth{auth},
			})
			if err != nil {
				return err
			}
		case m.GetState() == yarnpb.RpcSasl_SUCCESS && d != nil:
			if err := d.verify(string(m.GetToken())); err != nil {
				return err
			}
			c.out, c.in, err = d.securityLayers()
			return err
		default:
			return &AnswerError{
				Err: fmt.Errorf("the server answered %s, which is not a step of the authentication: see the server's log",
					m.GetState()),
			}
		}
	}
}

// tokenAuth returns the method for tokens, or nil if the server does not offer it.
func tokenAuth(auths []*yarnpb.RpcSasl_SaslAuth) *yarnpb.RpcSasl_SaslAuth {
	for _, a := range auths {
		if a.GetMethod() == "TOKEN" && a.GetMechanism() == "DIGEST-MD5" {
			return a
		}
	}
	return nil
}

// noTokens says that a server's methods of authentication contain none for tokens.
func noTokens(auths []*yarnpb.RpcSasl_SaslAuth) string {
	var methods []string
	for _, a := range auths {
		methods = append(methods, a.GetMethod())
	}
	offered := strings.Join(methods, ", ")
	text := fmt.Sprintf("YARN accepts no tokens, it offers %s", offered)
	if strings.Contains(offered, "KERBEROS") {
		return text + ", which tfcluster does not support yet: use --backend spark --master yarn"
	}
	return text + ": check that HADOOP_CONF_DIR is the configuration of this YARN"
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
	if err := a.exception(); err != nil {
		return nil, err
	}
	m := &yarnpb.RpcSasl{}
	if err := a.decode(m); err != nil {
		return nil, notHadoop("the server's answer to the authentication is not Hadoop's (%w)", err)
	}
	return m, nil
}

// protect wraps a frame if the connection has protection.
func (c *Conn) protect(frame []byte) ([]byte, error) {
	if c.out == nil {
		return frame, nil
	}
	return encodeFrame(saslCall, []byte{}, &yarnpb.RpcSasl{State: yarnpb.RpcSasl_WRAP.Enum(), Token: c.out.wrap(frame)})
}

// unwrapReader reads the frames within protected messages, whose boundaries may differ.
type unwrapReader struct {
	from io.Reader
	in   *securityLayer
	rest []byte
}

func (u *unwrapReader) Read(b []byte) (int, error) {
	for len(u.rest) == 0 {
		a, err := readFrame(u.from)
		if err != nil {
			return 0, err
		}
		if err := a.exception(); err != nil {
			return 0, err
		}
		m := &yarnpb.RpcSasl{}
		if err := a.decode(m); err != nil || m.GetState() != yarnpb.RpcSasl_WRAP {
			return 0, &AnswerError{
				Err: fmt.Errorf("the server sent a message without the protection that it agreed to (%s): "+
					"compare hadoop.rpc.protection in core-site.xml on the cluster and here", m.GetState()),
			}
		}
		if u.rest, err = u.in.unwrap(m.GetToken()); err != nil {
			return 0, err
		}
	}
	n := copy(b, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// connectionContext returns the context with the protocol, and with the user if there is no token: servers
// reject a user's name beside a token.
func connectionContext(protocol, user string, token *credentials.Token) proto.Message {
	m := &yarnpb.IpcConnectionContext{Protocol: &protocol}
	if token == nil {
		m.UserInfo = &yarnpb.UserInformation{EffectiveUser: &user}
	}
	return m
}
