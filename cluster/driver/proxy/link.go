package proxy

import "google.golang.org/grpc/connectivity"

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

func (p *Proxy) connected() bool {
	conn, _, _ := p.driver()
	return conn != nil
}

// connectionReady returns whether there is a working connection to the driver.
func (p *Proxy) connectionReady() bool {
	conn, _, _ := p.driver()
	return conn != nil && conn.GetState() == connectivity.Ready
}

func (p *Proxy) waitingFor() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// published returns whether a client may know the cluster: a driver has answered, or an earlier
// proxy existed.
func (p *Proxy) published() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg.Old != nil || p.address != ""
}

// shutdownRequested returns whether a client has called Shutdown.
func (p *Proxy) shutdownRequested() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shutdownAsked
}
