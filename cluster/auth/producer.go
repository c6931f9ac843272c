package auth

import (
	"crypto/tls"
	"errors"
	"slices"

	"google.golang.org/grpc/credentials"
)

// ProducerProtocol is what the producers of feeds speak on the agents' port instead of gRPC: its name in TLS (ALPN).
const ProducerProtocol = "tfcluster-feed"

// producerUnit marks the certificates of producers.
const producerUnit = "producer"

// verifyProtocol denies producers the services of agents and clients, and others the protocol of producers.
func verifyProtocol(s tls.ConnectionState) error {
	if isProducer(s) != (s.NegotiatedProtocol == ProducerProtocol) {
		return errors.New("the connection is refused: the client's certificate is not valid for this kind of connection, " +
			"so the client is not a part of this cluster")
	}
	return nil
}

func isProducer(s tls.ConnectionState) bool {
	return len(s.PeerCertificates) > 0 && slices.Contains(s.PeerCertificates[0].Subject.OrganizationalUnit, producerUnit)
}

// ProducerFeed returns for which feed the peer of a connection has a certificate; "" if it is no producer.
func ProducerFeed(info credentials.AuthInfo) string {
	if t, ok := info.(credentials.TLSInfo); ok && isProducer(t.State) {
		return t.State.PeerCertificates[0].Subject.CommonName
	}
	return ""
}
