// Package auth implements a cluster's certificate authority and the mutual TLS between the
// driver, its agents and the clients of its owner.
package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/internal/errtext"
)

// CoordinatorName is the name in the coordinator's certificate. It is not an address: agents
// connect to the advertised address and expect this name.
const CoordinatorName = "coordinator"

// Authority signs the certificates of one cluster: the coordinator's and one for each executor.
// It is created by reserve and ends with the cluster, so certificates of another cluster are
// not accepted.
type Authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	// CertPEM and KeyPEM are stored in the 0600 state file, for a driver that takes over from a
	// dead one.
	CertPEM, KeyPEM []byte
}

// certLife is the lifetime of certificates: longer than a cluster exists.
const certLife = 400 * 24 * time.Hour

// NewAuthority creates the authority of a cluster.
func NewAuthority(cluster string) (*Authority, error) {
	certPEM, keyPEM, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "tfcluster " + cluster}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	if err != nil {
		return nil, err
	}
	return LoadAuthority(certPEM, keyPEM)
}

// LoadAuthority loads an authority from the state file.
func LoadAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("the certificate of the cluster that its driver saved cannot be used: %w; "+
			"shut the cluster down and reserve it again", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errtext.Fault("the saved key of the cluster is a %T, not an ECDSA key", pair.PrivateKey)
	}
	return &Authority{key: key, cert: pair.Leaf, CertPEM: certPEM, KeyPEM: keyPEM}, nil
}

// Issue signs a certificate for a name: an executor's ID, or the coordinator.
func (a *Authority) Issue(name string) (certPEM, keyPEM []byte, err error) {
	return a.issue(pkix.Name{CommonName: name}, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
}

// IssueProducer signs a certificate for the producers of a feed. With it one can connect by
// ProducerProtocol only.
func (a *Authority) IssueProducer(feed string) (certPEM, keyPEM []byte, err error) {
	return a.issue(pkix.Name{CommonName: feed, OrganizationalUnit: []string{producerUnit}}, x509.ExtKeyUsageClientAuth)
}

func (a *Authority) issue(subject pkix.Name, usage ...x509.ExtKeyUsage) (certPEM, keyPEM []byte, err error) {
	return sign(&x509.Certificate{
		Subject: subject, DNSNames: []string{subject.CommonName}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usage,
	}, a.cert, a.key)
}

// sign makes a key and its certificate, which the parent's key signs, or, without a parent, the new key.
func sign(tmpl, parent *x509.Certificate, by *ecdsa.PrivateKey) (certPEM, keyPEM []byte, err error) {
	tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(certLife)
	var der, keyDER []byte
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err == nil && parent == nil {
		parent, by = tmpl, key
	}
	if err == nil {
		der, err = x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), by)
	}
	if err == nil {
		keyDER, err = x509.MarshalECPrivateKey(key)
	}
	if err != nil {
		return nil, nil, errtext.Fault("make the certificate of %s: %w", tmpl.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}

// config returns a TLS configuration for a name, with which peers need a certificate of this authority.
func (a *Authority) config(name string) (*tls.Config, error) {
	certPEM, keyPEM, err := a.Issue(name)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, errtext.AsFault(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool,
		ServerName: CoordinatorName, MinVersion: tls.VersionTLS13,
	}, nil
}

// ServerTLS returns the coordinator's TLS configuration: clients need a certificate of this
// authority. Producers of feeds speak ProducerProtocol, and nobody else does.
func (a *Authority) ServerTLS() (*tls.Config, error) {
	config, err := a.config(CoordinatorName)
	if err != nil {
		return nil, err
	}
	config.ClientAuth, config.NextProtos = tls.RequireAndVerifyClientCert, []string{ProducerProtocol}
	config.VerifyConnection = verifyProtocol
	return config, nil
}

// ID returns the identity of the authority's cluster: 128 bits in hexadecimal. Another cluster
// with the same name has a different ID; drivers that take a cluster over have the same,
// because they load its authority. The ID is not secret.
func (a *Authority) ID() string {
	if a == nil {
		return ""
	}
	sum := sha256.Sum256(a.cert.Raw)
	return hex.EncodeToString(sum[:16])
}
