package proxy

import "google.golang.org/grpc/connectivity"

// lose gives up the connection: the driver is not where it was.
func (p *Proxy) lose(waits string) {
	p.mu.Lock()
	conn := p.conn
	p.conn = nil
	if waits != "" {
		p.waits = waits
	}
	p.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it is of no use
	}
	p.wake()
}

func (p *Proxy) tell(waits string) {
	p.mu.Lock()
	p.waits = waits
	p.mu.Unlock()
	p.wake()
}

// tellOver has clients hear that the cluster is over, and why.
func (p *Proxy) tellOver(why error) {
	p.mu.Lock()
	p.over = why
	p.mu.Unlock()
	close(p.done)
	p.lose("")
}

func (p *Proxy) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn != nil
}

// answers is whether the connection to the driver stands.
func (p *Proxy) answers() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn != nil && p.conn.GetState() == connectivity.Ready
}

func (p *Proxy) why() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits
}

// known is whether the cluster has been there for a client.
func (p *Proxy) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg.Old != nil || p.address != ""
}

// asked is whether a client wanted the end.
func (p *Proxy) asked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wanted
}
