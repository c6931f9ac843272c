package proxy

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/tfcluster/tfcluster/cluster"
)

// link is what a proxy knows about the driver.
type link struct {
	remote        cluster.RemoteDriver // nil until it is submitted
	conn          *grpc.ClientConn     // nil while no driver answers
	address       string               // of conn, or of the last one
	heard         time.Time            // when conn, or the last one, was ready for the last time
	replaces      string               // when the engine replaces a driver that does not answer
	waiting       string               // the reason, while no driver answers
	changed       chan struct{}        // closed and replaced at each change
	over          error                // why the cluster is over
	shutdownAsked bool                 // a client asked for the end
}

// ready returns whether there is a working connection to the driver.
func (l link) ready() bool { return l.conn != nil && l.conn.GetState() == connectivity.Ready }

// broken reports whether the driver of the connection does not answer. An idle connection is tried.
func (l link) broken() bool {
	l.conn.Connect()
	return l.conn.GetState() == connectivity.TransientFailure
}

// look returns the link as it is now.
func (p *Proxy) look() link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link
}

// disconnect closes the connection to a driver that has gone. waits, unless "", is the reason
// to show.
func (p *Proxy) disconnect(waits string) {
	p.mu.Lock()
	conn := p.conn
	p.conn = nil
	if waits != "" {
		p.waiting = waits
	}
	p.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // the driver has gone
	}
	p.wake()
}

// silence says that a driver that has answered does not any more.
func (l link) silence() string {
	if l.conn != nil { // gRPC has not yet given it up
		return fmt.Sprintf("the cluster's driver at %s does not answer: its host is busy, down or cut off; %s", l.address,
			l.replaces)
	}
	return fmt.Sprintf("the cluster's driver at %s is silent for %.0f s: its host is down or cut off; %s", l.address,
		time.Since(l.heard).Seconds(), l.replaces)
}

// setHeard keeps the time at which the connection was ready last.
func (p *Proxy) setHeard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
}

func (p *Proxy) setWaiting(waits string) {
	p.mu.Lock()
	p.waiting = waits
	p.mu.Unlock()
	p.wake()
}

// setEnded fails clients' calls with the reason why the cluster is over.
func (p *Proxy) setEnded(why error) {
	p.mu.Lock()
	p.over = why
	p.mu.Unlock()
	close(p.done)
	p.disconnect("")
}

func (p *Proxy) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// published returns whether a client may know the cluster: a driver has answered, or an earlier
// proxy existed.
func (p *Proxy) published() bool { return p.cfg.Old != nil || p.look().address != "" }
