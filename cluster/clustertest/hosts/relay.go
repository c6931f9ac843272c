package hosts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxFrame is more than a frame with the offloads of a network card, in bytes.
const maxFrame = 1 << 17

// relay passes frames between two interfaces of a network namespace.
type relay struct {
	ends  [2]*os.File
	delay time.Duration
	loss  float64
	work  sync.WaitGroup
}

// newRelay starts a relay in the network of a process.
func newRelay(pid int, a, b string, delay time.Duration, loss float64) (*relay, error) {
	r := &relay{delay: delay, loss: loss}
	opened := make(chan error, 1)
	go func() { // its thread ends with it: it is in another namespace
		runtime.LockOSThread()
		opened <- r.open(pid, a, b)
	}()
	if err := <-opened; err != nil {
		return nil, err
	}
	r.work.Go(func() { r.pass(r.ends[0], r.ends[1]) })
	r.work.Go(func() { r.pass(r.ends[1], r.ends[0]) })
	return r, nil
}

func (r *relay) open(pid int, a, b string) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network of process %d: %w", pid, err)
	}
	for i, name := range []string{a, b} {
		if r.ends[i], err = listen(name); err != nil {
			return errors.Join(err, r.ends[0].Close())
		}
	}
	return nil
}

// listen opens a socket that receives and sends the frames of an interface, with their offloads (packet(7)).
func listen(name string) (*os.File, error) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	all := int(binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff}))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket for frames: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(device.Index), Type: unix.PACKET_MR_PROMISC}),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: device.Index}),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("receive the frames of %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// frame is a frame that waits.
type frame struct {
	at   time.Time
	data []byte
}

// pass passes the frames of one direction until the relay is stopped. Every frame waits equally long, so they stay in
// order.
func (r *relay) pass(from, to *os.File) {
	late := make(chan frame, 1<<14)
	r.work.Go(func() {
		for f := range late {
			time.Sleep(time.Until(f.at))
			_, _ = to.Write(f.data) // a frame that cannot be sent is lost
		}
	})
	defer close(late)
	buffer := make([]byte, maxFrame)
	for {
		n, err := from.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || rand.Float64() < r.loss {
			continue
		}
		select {
		case late <- frame{time.Now().Add(r.delay), append([]byte{}, buffer[:n]...)}:
		default: // a switch drops what it has no room for
		}
	}
}

func (r *relay) stop() {
	for _, end := range r.ends {
		_ = end.Close() // ends pass
	}
	r.work.Wait()
}
