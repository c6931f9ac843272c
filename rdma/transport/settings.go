package transport

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// VerbsSettings are what a site may set of RDMA. The zero value is not of use: see DefaultVerbs.
type VerbsSettings struct {
	Library      string        // path or name of libibverbs
	Device       string        // "mlx5_0", or "mlx5_0:1" with a port; "": by rule
	GID          int           // index of the own GID; -1: by rule
	Timeout      int           // exponent of the time in which a packet is acknowledged: 4.096 µs * 2^Timeout
	Retries      int           // of a packet, 0 to 7
	TrafficClass int           // of RoCE packets, with the DSCP in the upper six bits
	ServiceLevel int           // of InfiniBand packets, 0 to 15
	Spin         time.Duration // for which a completion is polled for before the goroutine waits
}

// DefaultVerbs returns the settings without any of the site. An end whose packets are not acknowledged fails after
// about 9 s; a process that ends is noticed at once, by its stream.
func DefaultVerbs() VerbsSettings {
	return VerbsSettings{Library: verbs.DefaultLibrary, GID: -1, Timeout: 18, Retries: 7, Spin: 20 * time.Microsecond}
}

// ParseVerbs returns the settings of an environment: TFCLUSTER_RDMA_DEVICE and its like.
func ParseVerbs(env func(name string) string) (VerbsSettings, error) {
	s := DefaultVerbs()
	var errs []error
	number := func(name string, to *int, most int) {
		text := env(name)
		if text == "" {
			return
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > most {
			errs = append(errs, fmt.Errorf("%s is %q: a number from 0 to %d is expected", name, text, most))
			return
		}
		*to = n
	}
	s.Device = env("TFCLUSTER_RDMA_DEVICE")
	if _, _, err := s.device(); err != nil {
		errs = append(errs, fmt.Errorf("TFCLUSTER_RDMA_DEVICE is %q: %w", s.Device, err))
	}
	if library := env("TFCLUSTER_RDMA_LIBRARY"); library != "" {
		s.Library = library
	}
	number("TFCLUSTER_RDMA_GID", &s.GID, 255)
	number("TFCLUSTER_RDMA_TIMEOUT", &s.Timeout, 31)
	number("TFCLUSTER_RDMA_RETRIES", &s.Retries, 7)
	number("TFCLUSTER_RDMA_TRAFFIC_CLASS", &s.TrafficClass, 255)
	number("TFCLUSTER_RDMA_SERVICE_LEVEL", &s.ServiceLevel, 15)
	if text := env("TFCLUSTER_RDMA_SPIN"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > time.Second {
			errs = append(errs, fmt.Errorf("TFCLUSTER_RDMA_SPIN is %q: a duration up to 1s is expected, such as 20us", text))
		} else {
			s.Spin = d
		}
	}
	return s, errors.Join(errs...)
}

// device returns the device and the port that are set; "" and 0: any.
func (s VerbsSettings) device() (name string, port int, err error) {
	name, text, hasPort := strings.Cut(s.Device, ":")
	if hasPort {
		if port, err = strconv.Atoi(text); err != nil || port < 1 || port > 255 {
			return "", 0, errors.New("a port is a number from 1")
		}
	}
	return name, port, nil
}
