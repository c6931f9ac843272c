package transport

import (
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// VerbsSettings has the port for RDMA and the parameters of its connections.
type VerbsSettings struct {
	Library      string // path or name of libibverbs
	Device       string // "mlx5_0"
	Port         int    // from 1
	GID          int    // index of the own GID
	Timeout      int    // exponent of the time for an acknowledgement: 4.096 µs * 2^Timeout; 0: for ever; at most 31
	Retries      int    // number of retries of a packet, up to 7
	TrafficClass int    // of RoCE packets: its upper six bits are the DSCP
	ServiceLevel int    // of InfiniBand packets, up to 15
	// Spin is the time in which a completion is polled for, before the goroutine waits for an event.
	Spin time.Duration
}

// DefaultVerbs returns the settings of a port. A connection fails about 9 s after the first packet without an
// acknowledgement. The end of a process is noticed at once, by its stream.
func DefaultVerbs(device string, port, gid int) VerbsSettings {
	return VerbsSettings{
		Library: verbs.DefaultLibrary, Device: device, Port: port, GID: gid, Timeout: 18, Retries: 7,
		Spin: 200 * time.Microsecond,
	}
}

// port is a port of an open device, with the GID by which peers reach it.
type port struct {
	verbs.Port
	gid verbs.GID
}

// pieceSize is the maximum size of a write, in bytes.
const pieceSize = 1 << 20

// largest returns the size in bytes of the largest write. A device with a driver that reports no limit can write
// pieceSize.
func (p port) largest() int {
	if p.MaxMessage == 0 {
		return pieceSize
	}
	return min(pieceSize, int(p.MaxMessage))
}

// openPort opens the device and returns its port of these settings. An error is one line.
func openPort(l *verbs.Library, s VerbsSettings) (d *verbs.Device, p port, err error) {
	if d, err = l.OpenDevice(s.Device); err != nil {
		return nil, port{}, err
	}
	defer func() {
		if err != nil {
			_ = d.Close() // it has not been used
			d = nil
		}
	}()
	if p.Port, err = d.Port(s.Port); err != nil {
		return d, port{}, err
	}
	if p.gid, err = d.GID(s.Port, s.GID); err != nil {
		return d, port{}, err
	}
	switch {
	case d.IWARP:
		err = fmt.Errorf("%s has iWARP, which lacks an operation that is needed (writes with immediates): "+
			"InfiniBand and RoCE have it", s.Device)
	case !p.Active:
		err = fmt.Errorf("port %d of %s is not active: see its cable and its state in ibv_devinfo", s.Port, s.Device)
	case p.gid == verbs.GID{}:
		err = fmt.Errorf("GID %d of port %d of %s is empty, so the port has no address there: "+
			"NCCL_IB_GID_INDEX names another", s.GID, s.Port, s.Device)
	}
	return d, p, err
}
