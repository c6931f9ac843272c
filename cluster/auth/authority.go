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
	"math/big"
	"time"
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the cluster's authority: %w", err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "tfcluster " + cluster},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the cluster's authority: %w", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of the cluster's authority: %w", err)
	}
	return LoadAuthority(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

// LoadAuthority loads an authority from the state file.
func LoadAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("the saved keys of the cluster's authority cannot be used: %w; shut the cluster down and reserve it again", err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("the saved certificate of the cluster's authority cannot be used: %w; shut the cluster down and reserve it again", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the saved key of the cluster's authority is a %T, not an ECDSA key; shut the cluster down and reserve it again", pair.PrivateKey)
	}
	return &Authority{key: key, cert: cert, CertPEM: certPEM, KeyPEM: keyPEM}, nil
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
	name := subject.CommonName
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the key of %s: %w", name, err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: subject, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: usage,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key of %s: %w", name, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}

// ServerTLS returns the coordinator's TLS configuration: clients need a certificate of this
// authority. Producers of feeds speak ProducerProtocol, and nobody else does.
func (a *Authority) ServerTLS() (*tls.Config, error) {
	certPEM, keyPEM, err := a.Issue(CoordinatorName)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("load the driver's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
		NextProtos: []string{ProducerProtocol}, VerifyConnection: verifyProtocol,
	}, nil
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system's random source failed
	}
	return n
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
